"""Notebooks on a Jupyter server: shared ones, and plain files where collaboration is not installed."""
