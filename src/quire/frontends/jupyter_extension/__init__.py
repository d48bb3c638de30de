"""The way in through a Jupyter server: the HTTP frontend's app below the server's base url, under its rules."""
