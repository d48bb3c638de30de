"""Snapshots in a folder: an index, chunks in packs, a key that signs; `store` is the way in."""
