"""Python guests with the libraries of data science: CPython with all of them inside as one core module."""
