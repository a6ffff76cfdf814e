"""The algorithm of attention: two products with a softmax between, as one nest."""
