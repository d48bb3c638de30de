"""What callers, code and workspaces may do."""
