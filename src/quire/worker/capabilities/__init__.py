"""Other MCP servers, and what the notebook itself offers, as Python objects: the part in the kernel."""
