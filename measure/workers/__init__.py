"""Worker processes that build candidates and run them."""
