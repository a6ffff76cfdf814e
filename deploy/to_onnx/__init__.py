"""Programs as ONNX models: a rule of each operation of StableHLO, a file for each family.

`table.py` joins the rules, `model.py` writes a program by them, `check.py` runs what was written.
"""
