"""The CPU backend: array functions over `numpy.ndarray`.

    allocator.py   memory for large arrays, kept for reuse: `empty`, `zeros`, `stats`, `release`
    threads.py     the process's thread pool: `num_threads`, `parallel_for`, `parallel_call`
    blas.py        products through NumPy's own OpenBLAS: `gemm`, `bgemm`, `gemv`, `dot`
    sysinfo.py     what the machine grants this process: cores, memory, CPU features

Functions here take and return arrays of any strides, allocate through `allocator.empty`, and write to an input only
when their name says so. They know NumPy and nothing of Tensor; generated code (`rushlight.compiler`) is reached by
late import inside functions, so that importing this package loads neither llvmlite nor scipy.
"""
