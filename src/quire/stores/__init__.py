"""Implementations of the ports that keep state: `core/ports/store.py`, `snapshots.py`, `files.py` and others."""
