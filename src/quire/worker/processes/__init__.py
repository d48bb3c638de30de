"""Processes of a kernel: zygote, supervisor, checkpoints, and what a fork loses."""
