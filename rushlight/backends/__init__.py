"""Backends: where arrays live and what computes on them.

    cpu/      NumPy arrays, a caching allocator, a thread pool, BLAS, array functions
    meta.py   arrays without memory: shape, strides and dtype only

A backend knows nothing of Tensor and must not import `core`, `ops`, `autograd`, `nn` or `optim`.
"""
