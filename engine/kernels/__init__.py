"""Kernels: the arithmetic of a forward pass, whose result for a row does not depend on the rows beside it.

In here: vectors and sums in one order (instructions, functions), the kernels made of them (products, pointwise, attention), the
threads that share them, and the kernels over tensors (tensors, passes). triton_kernels and triton_calls are the same on CUDA.
May import: torch, numba, triton, `engine/core`. Must never know: layers, stores, methods. `choice` alone is imported by others
before kernels are asked for: it needs no compiler.
"""
