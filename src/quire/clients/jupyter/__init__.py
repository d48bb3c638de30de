"""Client of a Jupyter server: its documents and kernels, over HTTP or from inside the server."""
