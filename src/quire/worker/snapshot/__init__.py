"""A namespace as bytes, and back: what survives a restart of the process it lives in."""
