"""The forms in which programs come in."""
