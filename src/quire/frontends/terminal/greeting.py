"""What a person sees when the HTTP server starts: where it is, what it runs under, what to paste."""

from __future__ import annotations

import json
import sys


def show(url: str, about: dict[str, str]) -> None:
    print(text(url, about), file=sys.stderr, flush=True)


def text(url: str, about: dict[str, str]) -> str:
    width = max(map(len, about))
    facts = "\n".join(f"  {name:<{width}}  {value}" for name, value in about.items())
    paste = json.dumps({"mcpServers": {"quire": {"type": "http", "url": url}}}, indent=2)
    return (
        f"Quire listens at {url}\n\n{facts}\n\n"
        f"Claude Code:  claude mcp add --transport http quire {url}\n"
        f"Other clients, in their configuration file:\n{paste}\n\nCtrl-C ends it."
    )
