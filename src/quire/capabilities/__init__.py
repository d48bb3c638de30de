"""Connections to MCP servers, over pipes and over HTTP."""
