"""Write snapshots of live namespaces, and drop old ones."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field

import anyio

from quire.core.checkpoints.checkpointer import INITIAL, Checkpointer, SnapshotSource
from quire.core.errors import OperationFailed, QuireError
from quire.core.kernels.slots import KernelSlots
from quire.core.model import Notebook, NotebookId, RunId, Snapshot, SnapshotId, Swept
from quire.core.ports.snapshots import Snapshots

log = logging.getLogger(__name__)
MAX_ATTEMPTS = 2  # a kernel may end while it is saved
_REST_FACTOR = 4  # times as long as a snapshot took: the pause before the next
_MAX_CONCURRENT = 8  # automatic snapshots of all notebooks: a few large ones must not delay the small ones
_MAX_UNNAMED = 10  # snapshots without a name kept for each notebook
_SWEEP_BYTES = 256 << 20  # dropped snapshots of this size are swept at once


@dataclass
class WriteTimes:
    """When snapshots of one notebook were written, and may be next."""

    started_at: float = float("-inf")
    rest_until: float = float("-inf")
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    def rest(self, seconds: float) -> None:
        self.rest_until = anyio.current_time() + seconds


class SnapshotWriter:
    def __init__(self, snapshots: Snapshots, slots: KernelSlots, checkpointer: Checkpointer, max_bytes: int) -> None:
        """`max_bytes` limits the size of a snapshot, and of all snapshots of a notebook on disk."""
        self._snapshots = snapshots
        self._slots = slots
        self._checkpointer = checkpointer
        self._max_bytes = max_bytes
        self._times: dict[NotebookId, WriteTimes] = {}
        self._dropped_bytes = 0  # since the last sweep, about
        self._concurrent = anyio.Semaphore(_MAX_CONCURRENT)

    def times(self, notebook: Notebook) -> WriteTimes:
        return self._times.setdefault(notebook.id, WriteTimes())

    async def has_state(self, notebook: Notebook) -> bool:
        """Whether a live kernel has a state to write."""
        if notebook.document is not None:
            return False
        await self._slots.get(notebook).wait_replaced()
        lineage = self._slots.lineage(notebook)
        return lineage is not None and (lineage.head is not None or notebook.origin is not None)

    async def ensure_saved(self, notebook: Notebook) -> Snapshot | None:
        """A snapshot of the live kernel's current state; written if missing."""
        for _ in range(MAX_ATTEMPTS):
            if not await self.has_state(notebook):
                return None
            snapshot = await self.write(notebook)
            if snapshot is not None:
                return snapshot
        return None

    async def save_completely(self, notebook: Notebook) -> bool:
        """Save the current state. Returns whether a restore loses nothing: no variable, thread or child process."""
        snapshot = await self.ensure_saved(notebook)
        source = await self._checkpointer.snapshot_source(notebook) if snapshot is not None else None
        if snapshot is None or source is None:
            return False
        report = source.kernel.checkpoints.get(source.checkpoint)
        source.drop_if_temporary()
        return snapshot.run == source.head and not snapshot.lost and report is not None and not report.lost

    async def write(self, notebook: Notebook, name: str = "") -> Snapshot | None:
        """Write the current state; without a name, only if it is not written yet. None if the kernel has ended."""
        times = self.times(notebook)
        async with times.lock:
            lineage = self._slots.lineage(notebook)
            for snapshot in await self._snapshots.list_for_notebook(notebook.id):
                if not name and lineage is not None and snapshot.run == lineage.head:
                    return snapshot
            times.started_at = anyio.current_time()
            try:
                return await self._write(notebook, name)
            finally:
                times.rest(_REST_FACTOR * (anyio.current_time() - times.started_at))

    async def _write(self, notebook: Notebook, name: str) -> Snapshot | None:
        source = await self._checkpointer.snapshot_source(notebook)
        if source is None:
            return None
        resets = self._slots.get(notebook).reset_count
        try:
            async with contextlib.nullcontext() if name else self._concurrent:
                snapshot = await self._publish(notebook, source, name)
        except OperationFailed:
            if self._slots.live_kernel(notebook) is source.kernel and source.checkpoint in source.kernel.checkpoints:
                raise
            return None  # the kernel ended meanwhile, or was rolled back to this checkpoint
        finally:
            source.drop_if_temporary()
        if self._slots.get(notebook).reset_count != resets and not name:
            await self._snapshots.delete([snapshot.id])
            return None
        await self._drop_old(notebook)
        return snapshot

    async def _publish(self, notebook: Notebook, source: SnapshotSource, name: str) -> Snapshot:
        base = await self._find_base(notebook, source.head)
        base_checkpoint = (base.run or INITIAL) if base is not None else ""
        draft = await self._snapshots.begin(notebook.id, base)
        try:
            written = await source.kernel.write(
                source.checkpoint, draft, base=base_checkpoint, limit=self._max_bytes, values=bool(name)
            )
            return await self._snapshots.publish(draft, written, run=source.head, name=name)
        finally:
            self._snapshots.abandon(draft)

    async def _find_base(self, notebook: Notebook, head: RunId | None) -> Snapshot | None:
        """The snapshot that differs least: the one of the nearest ancestor."""
        lineage = self._slots.lineage(notebook)
        ancestors = [*(lineage.ancestors(head) if lineage is not None else ()), None]
        found = {snapshot.run: snapshot for snapshot in await self._snapshots.list_for_notebook(notebook.id)}
        return next((found[run] for run in ancestors if run in found), None)

    async def _drop_old(self, notebook: Notebook) -> None:
        """Drop the oldest snapshots without a name while there are too many, or all take too many bytes."""
        snapshots = await self._snapshots.list_for_notebook(notebook.id)
        unnamed = [snapshot for snapshot in snapshots if not snapshot.name]
        size = sum(snapshot.added for snapshot in snapshots)
        dropped: list[SnapshotId] = []
        for snapshot in unnamed[:-1]:
            if len(unnamed) - len(dropped) > _MAX_UNNAMED or size > self._max_bytes:
                dropped.append(snapshot.id)
                size -= snapshot.added
                self._dropped_bytes += snapshot.added
        if dropped:
            await self._snapshots.delete(dropped)
        if self._dropped_bytes > _SWEEP_BYTES:
            await self.sweep_quietly()

    async def sweep(self, *, dry: bool = False) -> Swept:
        """Delete the chunks that no snapshot needs; with `dry` only count them."""
        return await self._snapshots.sweep(dry=dry)

    async def sweep_quietly(self) -> None:
        """Sweep, and log an error instead of raising it."""
        self._dropped_bytes = 0
        try:
            await self.sweep()
        except QuireError as error:
            log.warning("sweeping snapshots: %s", error)
