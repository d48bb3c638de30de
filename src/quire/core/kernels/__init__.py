"""Kernels: the pool, their lineage, admission, idleness and memory pressure."""
