"""Programs: reading, normal form, sites, kernels, the oracle, splicing.  Start at
`hlo/frontends/program.py`.
"""
