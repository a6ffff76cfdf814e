"""Loop nests as LLVM text, and its compilation."""
