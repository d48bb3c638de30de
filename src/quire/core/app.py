"""A running Quire: the rooms a frontend calls, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quire.core.approvals import Approvals
from quire.core.audit import Calls
from quire.core.batches import Batches
from quire.core.capabilities import Capabilities
from quire.core.capability_ports import Backends
from quire.core.confines import Confines
from quire.core.current import Current
from quire.core.documents import Documents
from quire.core.durable import Durable
from quire.core.feed import Feed
from quire.core.file_ports import Disk
from quire.core.files import Files
from quire.core.jupyter import Jupyter
from quire.core.kernels import Kernels
from quire.core.limits import Limits
from quire.core.mirrors import Mirrors
from quire.core.model import Notebook
from quire.core.notebooks import Notebooks
from quire.core.questions import Questions
from quire.core.quotas import Rates
from quire.core.relaying import Relaying
from quire.core.runs import Runs
from quire.core.sandboxes import Sandboxes
from quire.core.saving import Saving
from quire.core.sharing import Sharing
from quire.core.timeline import Timeline


@dataclass(frozen=True, kw_only=True)
class App:
    notebooks: Notebooks
    runs: Runs
    questions: Questions
    batches: Batches
    documents: Documents
    files: Files
    sandboxes: Sandboxes
    mirrors: Mirrors
    timeline: Timeline
    saving: Saving | None  # None where nothing is kept
    durable: Durable | None
    kernels: Kernels
    backends: Backends
    capabilities: Capabilities
    relay: Relaying
    approvals: Approvals
    sharing: Sharing
    confines: Confines
    current: Current
    jupyter: Jupyter
    feed: Feed
    calls: Calls  # those that ended: counted, and in the audit log
    disk: Disk | None  # None where nothing is kept
    limits: Limits
    rates: Rates
    workspace: Callable[[Notebook], str]  # the folder a notebook's code works in
    about: dict[str, str]  # what this Quire runs under, for people: version, store, runtimes
