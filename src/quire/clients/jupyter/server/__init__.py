"""A Jupyter server: its address, HTTP requests, websockets, and the servers that are known."""
