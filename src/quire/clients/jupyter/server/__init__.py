"""HTTP requests and websockets to a Jupyter server, and the registry of servers."""
