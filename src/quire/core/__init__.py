"""What Quire does: notebooks, runs, kernels. No framework, no I/O library but anyio."""
