"""The HTTP way in: MCP over streamable HTTP, and a health check."""
