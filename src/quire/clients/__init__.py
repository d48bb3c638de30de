"""Clients of other programs. They import nothing else of Quire."""
