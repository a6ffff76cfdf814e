"""One network for small images in each of five frameworks, as a program for `tune`."""
