"""Kernels nobody uses: one that can be brought back whole sleeps on disk, any other is saved and closed much later."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import anyio

from quire.core.checkpoints.autosave import Autosaver
from quire.core.errors import QuireError
from quire.core.kernels.pool import KernelPool
from quire.core.model import Notebook

log = logging.getLogger(__name__)
_LOOK = 30.0  # seconds between looks


@dataclass(frozen=True, kw_only=True)
class IdleRules:
    hibernate_after: float  # seconds until one that loses nothing by it is put to disk; 0 never
    timeout: float  # seconds until any is; 0 never


class Hibernator:
    def __init__(self, kernels: KernelPool, saving: Autosaver | None, rules: IdleRules) -> None:
        self._kernels = kernels
        self._saving = saving
        self._rules = rules

    async def watch(self) -> None:
        """Runs until cancelled."""
        times = [each for each in (self._rules.hibernate_after, self._rules.timeout) if each]
        while times:
            await anyio.sleep(min(_LOOK, *times))
            for notebook, seconds in self._kernels.idle():
                try:
                    await self._consider(notebook, seconds)
                except QuireError as error:
                    log.warning("closing the kernel of notebook %r: %s", notebook.name, error)

    async def hibernate(self, notebook: Notebook, why: str) -> bool:
        """Put its kernel to sleep on disk, where nobody uses it and nothing is lost by it; whether that is so now."""
        line = self._kernels.line(notebook)
        head = line.head if line is not None else None
        try:
            if self._saving is None or not await self._saving.whole(notebook):
                return False
        except QuireError as error:
            log.warning("putting the kernel of notebook %r to sleep: %s", notebook.name, error)
            return False
        await self._kernels.put_away(notebook, head, why)
        return self._kernels.live(notebook) is None

    async def _consider(self, notebook: Notebook, seconds: float) -> None:
        after, timeout = self._rules.hibernate_after, self._rules.timeout
        line = self._kernels.line(notebook)
        head = line.head if line is not None else None
        slept = f"it was put to sleep after {after:g} s without use"
        if after and seconds >= after and await self.hibernate(notebook, slept):
            return
        if timeout and seconds >= timeout:
            try:
                if self._saving is not None:
                    await self._saving.saved(notebook)
            finally:
                await self._kernels.put_away(notebook, head, f"it was closed after {timeout:g} s without use")
