"""Python guests: CPython in a component, its memory read and written through the window that was built into it."""
