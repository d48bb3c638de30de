"""The Python runtime: kernels forked from a warm zygote."""
