"""A listener for a capability backend that records all events, and backends that misbehave."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import Any

from quire.core.capabilities.model import Backend, Offered
from tests.support.backends import BACKENDS
from tests.support.waiting import DEADLINE


@dataclass
class Heard:
    """A listener that keeps what it hears."""

    offers: list[Offered] = field(default_factory=list)
    logs: list[tuple[str, str]] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def changed(self, offered: Offered) -> None:
        self.offers.append(offered)
        self.news.set()

    def logged(self, level: str, text: str) -> None:
        self.logs.append((level, text))
        self.news.set()

    def lost(self, why: str) -> None:
        self.losses.append(why)
        self.news.set()

    def clear(self) -> None:
        """Forget everything, for the next test on the same connection."""
        for events in (self.offers, self.logs, self.losses):
            events.clear()

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(DEADLINE):
            while not true():
                self.news.clear()
                await self.news.wait()


def misbehaving(*mode: str, **given: Any) -> Backend:
    return Backend(command=(sys.executable, str(BACKENDS / "misbehaving.py"), *mode), **given)
