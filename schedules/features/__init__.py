"""What cost models see of a loop nest."""
