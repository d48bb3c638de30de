"""Settings as the rules that rooms of the core are given."""

from __future__ import annotations

from quire.core.approvals import ApprovalRules
from quire.core.capability import Approve
from quire.core.idle import IdleRules
from quire.core.kernels import KernelRules
from quire.core.limits import Limits
from quire.core.quotas import Quotas
from quire.core.saving import SavingRules
from quire.core.space import SpaceRules
from quire.settings import Settings


def limits(settings: Settings) -> Limits:
    return Limits(
        max_notebooks=settings.max_notebooks_per_user,
        cell_timeout=settings.cell_timeout,
        max_timeout=settings.max_timeout,
        max_cells=settings.max_cells,
        max_code_bytes=settings.max_code_bytes,
        max_output_bytes=settings.max_output_bytes,
        grace=settings.grace,
        patience=settings.patience,
        network=settings.network,
    )


def quotas(settings: Settings) -> Quotas:
    return Quotas(
        kernels=settings.max_kernels,
        kernels_each=settings.max_kernels_per_user,
        runs=settings.max_runs,
        runs_each=settings.max_runs_per_user,
        memory_each=settings.max_memory_bytes_per_user,
        free=settings.min_free_bytes,
        requests=settings.requests_per_minute,
        burst=settings.requests_burst,
    )


def idle(settings: Settings) -> IdleRules:
    return IdleRules(hibernate_after=settings.hibernate_after, timeout=settings.idle_timeout)


def kernels(settings: Settings) -> KernelRules:
    return KernelRules(restore=settings.auto_restore, replay=settings.replay)


def saving(settings: Settings) -> SavingRules:
    return SavingRules(
        interval=settings.snapshot_interval, most_bytes=settings.snapshot_bytes, at_end=settings.auto_save
    )


def space(settings: Settings) -> SpaceRules:
    """A folder that the operator named is not counted unless they say so: what lies there may be theirs."""
    said = {"workspace_bytes", "workspace_files"} & settings.model_fields_set
    if settings.workspace is not None and not said:
        return SpaceRules(bytes=0, files=0)
    return SpaceRules(bytes=settings.workspace_bytes, files=settings.workspace_files)


def approvals(settings: Settings) -> ApprovalRules:
    rules = {what: Approve(word) for what, word in settings.approve.items()}
    return ApprovalRules(rules=rules, unasked=settings.approve_unasked, timeout=settings.approve_timeout)
