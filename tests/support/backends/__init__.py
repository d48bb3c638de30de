"""MCP servers that tests run as capability backends. Each module in this folder is a program."""

from __future__ import annotations

from pathlib import Path

BACKENDS = Path(__file__).parent
