"""Save namespaces automatically: after changes, and when the server ends."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from quire.core.checkpoints.snapshot_writer import SnapshotWriter
from quire.core.errors import QuireError
from quire.core.kernels.slots import KernelSlots
from quire.core.model import Notebook, NotebookId
from quire.core.ops.change_bus import Change, Feed
from quire.core.ops.task_groups import background

log = logging.getLogger(__name__)
_QUIET_S = 0.2  # after a change, because another may follow at once
_RETRY_S, _MAX_RETRY_S = 2.0, 300.0  # after a failure: doubled each time, up to the second
_SWEEP_INTERVAL_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class AutosaveRules:
    interval: float  # seconds between two automatic snapshots of a notebook; 0 takes none
    max_bytes: int  # of a snapshot, and of all snapshots of a notebook on disk
    shutdown_timeout: float  # seconds for saving when the server ends; 0 saves nothing then


@dataclass
class _Autosave:
    """The state of one notebook's autosave."""

    notebook: Notebook
    has_task: bool = False
    has_changed: bool = False  # since the task last saved
    changed_at: float = float("-inf")
    failures: int = 0  # in a row
    has_warned: bool = False


class Autosaver:
    def __init__(self, writer: SnapshotWriter, slots: KernelSlots, feed: Feed, rules: AutosaveRules) -> None:
        self._writer = writer
        self._slots = slots
        self._feed = feed
        self._rules = rules
        self._autosaves: dict[NotebookId, _Autosave] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Saves changes during the block, and what is not saved yet after it."""
        async with background() as group:
            group.start_soon(self._sweep_regularly)
            unsubscribe = self._feed.listen(lambda change: self._on_change(change, group))
            try:
                yield
            finally:
                unsubscribe()
                if self._rules.shutdown_timeout:
                    with anyio.CancelScope(shield=True), anyio.move_on_after(self._rules.shutdown_timeout):
                        await self._save_all()

    def _on_change(self, change: Change, group: TaskGroup) -> None:
        notebook = change.notebook
        if notebook.document is not None:
            return
        autosave = self._autosaves.get(notebook.id)
        if autosave is None:
            autosave = self._autosaves[notebook.id] = _Autosave(notebook)
        autosave.has_changed = True
        autosave.changed_at = anyio.current_time()
        if self._rules.interval and not autosave.has_task:
            autosave.has_task = True
            group.start_soon(self._save_changes, autosave)

    async def _save_changes(self, autosave: _Autosave) -> None:
        """Save until there are no more changes."""
        try:
            while autosave.has_changed:
                await self._wait_due(autosave)
                autosave.has_changed = False
                autosave.failures = 0 if await self._save_quietly(autosave) else autosave.failures + 1
                if autosave.failures:
                    autosave.has_changed = True
                    self._writer.times(autosave.notebook).rest(min(_RETRY_S * 2**autosave.failures, _MAX_RETRY_S))
        finally:
            autosave.has_task = False

    async def _wait_due(self, autosave: _Autosave) -> None:
        """Wait until the next snapshot may be taken: after the interval, and in a pause between changes."""
        latest = anyio.current_time() + self._rules.interval
        times = self._writer.times(autosave.notebook)
        while True:
            quiet = min(autosave.changed_at + _QUIET_S, latest)
            left = max(times.started_at + self._rules.interval, times.rest_until, quiet) - anyio.current_time()
            if left <= 0:
                return
            await anyio.sleep(left)

    async def _save_quietly(self, autosave: _Autosave) -> bool:
        """Returns whether the state is saved. A failure is told once, with the next answer; the last snapshot stays."""
        notebook = autosave.notebook
        try:
            snapshot = await self._writer.ensure_saved(notebook)
            autosave.has_warned = False
            # no snapshot though there is a state: its checkpoint was woken each time it was written
            return snapshot is not None or not await self._writer.has_state(notebook)
        except QuireError as error:
            if self._slots.live_kernel(notebook) is not None and not autosave.has_warned:
                autosave.has_warned = True
                notice = f"The current state of the namespace is not saved: {error}"
                self._slots.add_notice(notebook, notice)
                log.warning("notebook %r: %s", notebook.name, notice)  # at the server's end there is no next answer
        except Exception:
            log.exception("saving notebook %r", notebook.name)
        return False

    async def _save_all(self) -> None:
        async with anyio.create_task_group() as group:
            for autosave in list(self._autosaves.values()):
                group.start_soon(self._save_quietly, autosave)

    async def _sweep_regularly(self) -> None:
        """Runs until cancelled."""
        while True:
            await anyio.sleep(_SWEEP_INTERVAL_S)
            await self._writer.sweep_quietly()
