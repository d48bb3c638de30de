"""The terminal: what commands print, and how they ask the core."""
