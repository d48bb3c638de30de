"""`python -m bench [name ...]`: run the measurements and say which hold."""

from __future__ import annotations

import asyncio
import importlib
import sys

NAMES = (
    "surface", "execute", "records", "start", "order", "crowd", "protect", "recover", "rollback", "idle", "flood",
    "snapshot", "corpus", "relay", "sandbox", "fuzz", "hostile", "crowd_users", "loaded", "wasm", "science",
    "jupyter",
)  # fmt: skip


def main() -> int:
    missed = 0
    for name in sys.argv[1:] or NAMES:
        for what, ratio, limit in asyncio.run(importlib.import_module(f"bench.{name}").main()):
            holds = ratio <= limit
            missed += not holds
            print(f"{'ok  ' if holds else 'MISS'} {what}: {_said(ratio)} (at most {_said(limit)})", flush=True)
    return 1 if missed else 0


def _said(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


sys.exit(main())
