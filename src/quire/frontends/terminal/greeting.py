"""The text that a server prints at its start: its address, its settings, and what to configure in a client."""

from __future__ import annotations

import json
import sys

STDIO = """Quire waits for an MCP client on standard input. A client starts it by itself:

  quire install claude-code            writes the client's configuration; other clients: quire install --help
  claude mcp add quire -- quire        does the same by hand
  quire serve --server-transport http  serves over HTTP instead, for clients that connect to an address
  quire exec 'print(1 + 1)'            runs code without a client

Ctrl-C ends it."""


def show(url: str, about: dict[str, str]) -> None:
    print(text(url, about), file=sys.stderr, flush=True)


def show_stdio() -> None:
    """For a person who started `quire` by hand: without it the server would seem to hang."""
    print(STDIO, file=sys.stderr, flush=True)


def text(url: str, about: dict[str, str]) -> str:
    width = max(map(len, about))
    facts = "\n".join(f"  {name:<{width}}  {value}" for name, value in about.items())
    paste = json.dumps({"mcpServers": {"quire": {"type": "http", "url": url}}}, indent=2)
    return (
        f"Quire listens at {url}\n\n{facts}\n\n"
        f"Claude Code:  claude mcp add --transport http quire {url}\n"
        f"Other clients, in their configuration file:\n{paste}\n\nCtrl-C ends it."
    )
