"""MCP servers as objects in notebooks: registry, connections, calls, approvals."""
