"""Native code: scalar expressions and row programs become LLVM kernels, loaded in memory and cached on disk.

    jit.py      IR text -> machine code -> addresses (LLJIT); freed with the `Library` that holds it
    cache.py    object code on disk, keyed by text, CPU and versions
    target.py   what the host can do: vector width, CPU name and features
    builder.py  a writer of IR text: values, vectors, blocks, constants
    vecmath.py  elementary functions on vectors, branch-free, with stated errors
    scalar.py   `Expr` graphs -> vector instructions: dtypes, casts, integers, logic
    llvm.py     `Module`: loops over arrays (pointwise, reduce, row) around those instructions
    kernels.py  ready-made kernels for eager execution

These know `ops/expr.py` and NumPy dtypes by name, and nothing of Tensor. llvmlite is imported only when code is
compiled or loaded; `jit.available()` tells whether it can be.
"""
