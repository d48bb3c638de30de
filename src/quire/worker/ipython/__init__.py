"""IPython in a kernel's namespace. Imported only if IPython is installed."""
