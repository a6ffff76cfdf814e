"""PyTorch programs, as `torch.export` writes them: an operation of ATen has a rule over JAX each.

Files are read without torch, which would unpickle and evaluate what is in them.
"""
