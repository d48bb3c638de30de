"""Snapshots in a folder: an index, packs of chunks, and a key that signs. `store.py` implements the port."""
