"""Views of computes: the kinds of kernel that spaces are made for."""
