"""Instruction sequences for accesses and products that a loop nest alone does not name."""
