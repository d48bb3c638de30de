"""The services of kernels and their checkpoints, put together in the order in which they depend on each other."""

from __future__ import annotations

from dataclasses import dataclass

from quire.core.checkpoints.autosave import Autosaver, AutosaveRules
from quire.core.checkpoints.branches import Branches
from quire.core.checkpoints.checkpoint_list import CheckpointList
from quire.core.checkpoints.checkpointer import Checkpointer
from quire.core.checkpoints.restorer import SnapshotRestorer
from quire.core.checkpoints.saved_states import SavedStates
from quire.core.checkpoints.snapshot_writer import SnapshotWriter
from quire.core.checkpoints.state_resolver import StateResolver
from quire.core.kernels.admission import KernelAdmission
from quire.core.kernels.idle import Hibernator, IdleRules
from quire.core.kernels.pool import KernelPool, KernelRules
from quire.core.kernels.recovery import KernelRecovery
from quire.core.kernels.runtimes import Runtimes
from quire.core.kernels.slots import KernelSlots
from quire.core.limits.quotas import Quotas
from quire.core.notebooks.cells import Cells
from quire.core.notebooks.service import Notebooks
from quire.core.ops.change_bus import Feed
from quire.core.ports.capabilities import CapabilityStore
from quire.core.ports.snapshots import Snapshots
from quire.core.ports.store import Leases, NotebookStore, RunStore


@dataclass(frozen=True, kw_only=True)
class KernelConfig:
    quotas: Quotas
    rules: KernelRules
    idle: IdleRules
    autosave: AutosaveRules


@dataclass(frozen=True, kw_only=True)
class KernelServices:
    slots: KernelSlots
    recovery: KernelRecovery
    checkpointer: Checkpointer
    restorer: SnapshotRestorer | None  # these are None if nothing is kept on disk
    writer: SnapshotWriter | None
    autosaver: Autosaver | None
    saved_states: SavedStates | None
    hibernator: Hibernator
    pool: KernelPool
    resolver: StateResolver
    checkpoints: CheckpointList
    branches: Branches


def build(
    store: NotebookStore,
    run_store: RunStore,
    leases: Leases,
    notebooks: Notebooks,
    cells: Cells,
    feed: Feed,
    capability_store: CapabilityStore,
    runtimes: Runtimes,
    snapshots: Snapshots | None,
    config: KernelConfig,
) -> KernelServices:
    slots = KernelSlots(leases)
    restorer = SnapshotRestorer(snapshots, store, run_store) if snapshots is not None else None
    recovery = KernelRecovery(slots, store, run_store, restorer)
    checkpointer = Checkpointer(slots, runtimes, recovery)
    max_bytes = config.autosave.max_bytes
    writer = SnapshotWriter(snapshots, slots, checkpointer, max_bytes) if snapshots is not None else None
    hibernator = Hibernator(slots, writer, config.idle)
    admission = KernelAdmission(slots, hibernator.hibernate, config.quotas)
    pool = KernelPool(slots, runtimes, checkpointer, recovery, restorer, admission, config.rules)
    resolver = StateResolver(store, run_store, cells, restorer)
    return KernelServices(
        slots=slots,
        recovery=recovery,
        checkpointer=checkpointer,
        restorer=restorer,
        writer=writer,
        autosaver=Autosaver(writer, slots, feed, config.autosave) if writer is not None else None,
        saved_states=SavedStates(snapshots, writer, pool, run_store, capability_store)
        if snapshots and writer
        else None,
        hibernator=hibernator,
        pool=pool,
        resolver=resolver,
        checkpoints=CheckpointList(store, run_store, slots, checkpointer, restorer),
        branches=Branches(notebooks, cells, pool, checkpointer, admission, resolver, feed),
    )
