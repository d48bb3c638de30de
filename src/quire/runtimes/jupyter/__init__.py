"""Kernels of Jupyter servers: those that people use with a document, and those started for it."""
