"""What this project says of its own speed, measured again: `python -m benchmarks.NAME`.

`cases.py` has the operators, made of what `operations.py` and `jax_operations.py` have;
`operators.py`, `curves.py`, `tuner_speed.py`, `models.py` and `peers/` measure, print a table, and
write it to `build/`; `page.py` puts those tables into the pages of `docs/`.  `busy.py` tunes
beside a process that keeps a processor busy.
`dataset.py` records trials of the kernels in `dataset_kernels.py`, for cost models to learn from.
`learning.py` shows what searches save by that.
"""
