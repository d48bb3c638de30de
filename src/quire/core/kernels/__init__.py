"""Kernels: pool, slots, lineage, recovery, admission, hibernation and memory pressure."""
