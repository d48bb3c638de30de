"""What cells get where IPython is not installed: its syntax, magics, display classes and `get_ipython()`."""
