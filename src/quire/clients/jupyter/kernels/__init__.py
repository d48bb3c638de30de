"""Kernels of a Jupyter server: messages, executions and connections."""
