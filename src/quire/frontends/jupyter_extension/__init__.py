"""Jupyter server extension: serves the HTTP app below the server's base URL, with the server's authentication."""
