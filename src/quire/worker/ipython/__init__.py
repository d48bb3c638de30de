"""IPython itself over a kernel's namespace, where it is installed. Imported only then."""
