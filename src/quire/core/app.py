"""The services of a running Quire, which frontends call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quire.core.capabilities.approvals import Approvals
from quire.core.capabilities.gateway import CapabilityGateway
from quire.core.capabilities.registry import CapabilityRegistry
from quire.core.checkpoints.branches import Branches
from quire.core.checkpoints.checkpoint_list import CheckpointList
from quire.core.checkpoints.restorer import SnapshotRestorer
from quire.core.checkpoints.saved_states import SavedStates
from quire.core.checkpoints.snapshot_writer import SnapshotWriter
from quire.core.checkpoints.timeline import Timeline
from quire.core.kernels.inspector import KernelInspector
from quire.core.kernels.pool import KernelPool
from quire.core.limits.caller_policy import UntrustedCallerPolicy
from quire.core.limits.quotas import RateLimiter
from quire.core.limits.validation import Limits
from quire.core.model import Notebook
from quire.core.notebooks.cells import Cells
from quire.core.notebooks.current import CurrentNotebooks
from quire.core.notebooks.documents import Documents
from quire.core.notebooks.files import Files
from quire.core.notebooks.mirrors import Mirrors
from quire.core.notebooks.outputs import Outputs
from quire.core.notebooks.sandbox_sessions import SandboxSessions
from quire.core.notebooks.service import Notebooks
from quire.core.notebooks.sharing import Sharing
from quire.core.ops.audit import CallLog
from quire.core.ops.change_bus import Feed
from quire.core.ports.capabilities import Backends
from quire.core.ports.files import Disk
from quire.core.ports.jupyter import Jupyter
from quire.core.runs.batch import Batches
from quire.core.runs.service import Runs


@dataclass(frozen=True, kw_only=True)
class App:
    notebooks: Notebooks
    cells: Cells
    outputs: Outputs
    runs: Runs
    inspector: KernelInspector
    batches: Batches
    documents: Documents
    files: Files
    sandboxes: SandboxSessions
    mirrors: Mirrors
    timeline: Timeline
    checkpoints: CheckpointList
    branches: Branches
    saved_states: SavedStates | None  # these are None if nothing is kept on disk
    snapshot_writer: SnapshotWriter | None
    restorer: SnapshotRestorer | None
    kernels: KernelPool
    backends: Backends
    capabilities: CapabilityRegistry
    gateway: CapabilityGateway
    approvals: Approvals
    sharing: Sharing
    caller_policy: UntrustedCallerPolicy
    current: CurrentNotebooks
    jupyter: Jupyter
    feed: Feed
    calls: CallLog
    disk: Disk | None  # None if nothing is kept on disk
    limits: Limits
    rates: RateLimiter
    workspace: Callable[[Notebook], str]  # the folder that a notebook's code works in
    about: dict[str, str]  # version, store, Python, sandbox and tool sets, for people
