"""A Jupyter server: its documents and its kernels, from outside and from inside."""
