"""The MCP way in: tools, resources and prompts over the core, for both protocol eras."""
