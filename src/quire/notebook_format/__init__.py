"""Notebooks as people have them: Jupyter's ipynb, in and out."""
