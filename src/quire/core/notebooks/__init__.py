"""Notebooks: cells, documents, files, and who may use them."""
