"""Save a namespace under a name, with a file of it for people to read."""

from __future__ import annotations

from quire.core.checkpoints import state_file
from quire.core.checkpoints.snapshot_writer import MAX_ATTEMPTS, SnapshotWriter
from quire.core.errors import InvalidRequest, OperationFailed
from quire.core.kernels.pool import KernelPool
from quire.core.limits.validation import check_name, check_states
from quire.core.model import LOCAL, Notebook, Snapshot
from quire.core.ports.capabilities import CapabilityStore
from quire.core.ports.snapshots import Snapshots
from quire.core.ports.store import RunStore


class SavedStates:
    def __init__(
        self,
        snapshots: Snapshots,
        writer: SnapshotWriter,
        kernels: KernelPool,
        run_store: RunStore,
        capabilities: CapabilityStore,
    ) -> None:
        self._snapshots = snapshots
        self._writer = writer
        self._kernels = kernels
        self._run_store = run_store
        self._capabilities = capabilities

    async def save(self, notebook: Notebook, name: str) -> tuple[Snapshot, str]:
        """Save the current state, replacing a state of the same name. Returns the snapshot and the path of the readable
        file. Raises OperationFailed."""
        check_states(notebook)
        check_name(name, what="saved state")
        snapshot = None
        for _ in range(MAX_ATTEMPTS):
            async with self._kernels.lease(notebook) as lease:
                if lease.notice:
                    self._kernels.slots.add_notice(notebook, lease.notice)
                if lease.lineage.head is None and notebook.origin is None:
                    raise InvalidRequest("No cell has run yet: there is nothing to save.")
            snapshot = await self._writer.write(notebook, name)
            if snapshot is not None:
                break
        if snapshot is None:
            raise OperationFailed("The kernel ended before its state was saved. Call again.")
        runs = await self._run_store.list_runs(notebook.id)
        capabilities = await self._capabilities.list_for_owner(notebook.owner)
        text = state_file.to_json(notebook, snapshot, runs, await self._snapshots.load_values(snapshot), capabilities)
        title = notebook.name if notebook.owner == LOCAL else f"{notebook.owner}/{notebook.name}"
        return snapshot, await self._snapshots.write_copy(title, name, text)
