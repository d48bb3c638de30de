"""Reads and writes notebooks as ipynb and percent scripts; writes them as Markdown and HTML."""
