"""Ways in: one protocol each, turned into calls on the core."""
