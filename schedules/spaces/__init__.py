"""Search spaces: sketches of nests and the knobs that they leave open."""
