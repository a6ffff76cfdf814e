"""StableHLO modules in MLIR: reading, normal form, values."""
