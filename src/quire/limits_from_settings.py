"""The rules and limits that the services of the core get from the settings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from quire.core.capabilities.approvals import ApprovalRules
from quire.core.capabilities.gateway import CallLimits
from quire.core.capabilities.model import Approve
from quire.core.checkpoints.autosave import AutosaveRules
from quire.core.errors import InvalidRequest
from quire.core.kernels.idle import IdleRules
from quire.core.kernels.pool import KernelRules
from quire.core.kernels.services import KernelConfig
from quire.core.limits.caller_policy import UntrustedCallerPolicy
from quire.core.limits.network_rules import still_granted
from quire.core.limits.quotas import Quotas
from quire.core.limits.validation import Limits
from quire.core.limits.workspace_quota import WorkspaceLimits
from quire.core.model import LOCAL, KernelLimits, KernelSpec, Mount, Notebook
from quire.settings import Settings

_INTERPRETER_TIMEOUT_S = 30.0  # for a program to show that it is a Python interpreter
_OLDEST_PYTHON = (3, 11)


def check(settings: Settings, *, kernels: bool) -> None:
    """Raises InvalidRequest if settings conflict or do not fit this machine. Nothing is started before."""
    workspace(settings)
    if not kernels:
        return
    for mount in mounts(settings):
        if not os.path.lexists(mount.path):
            raise InvalidRequest(f"Setting 'sandbox.mounts' cannot name {mount.path!r}: there is no such folder.")
    if "python" in settings.kernel.model_fields_set and (problem := _interpreter_problem(settings.kernel.python)):
        raise InvalidRequest(f"Setting 'kernel.python' cannot be {settings.kernel.python!r}: {problem}.")


def _interpreter_problem(named: str) -> str:
    """Why kernels cannot run on this program; "" if they can."""
    found = shutil.which(named)
    if found is None:
        return "it is not an executable file" if Path(named).exists() else "there is no such program"
    show = "import sys; print('python', *sys.version_info[:2])"
    try:
        asked = subprocess.run(
            [found, "-S", "-c", show], stdin=subprocess.DEVNULL, capture_output=True, timeout=_INTERPRETER_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"it did not show within {_INTERPRETER_TIMEOUT_S:g} s that it is a Python interpreter"
    except OSError:
        return "it is not a Python interpreter"
    version = re.fullmatch(rb"python (\d{1,3}) (\d{1,3})\s*", asked.stdout)
    if version is None:
        return "it is not a Python interpreter"
    major, minor = int(version[1]), int(version[2])
    return "" if (major, minor) >= _OLDEST_PYTHON else f"it is Python {major}.{minor}, and kernels need 3.11 or newer"


def limits(settings: Settings) -> Limits:
    return Limits(
        max_notebooks=settings.limits.max_notebooks_per_user,
        cell_timeout=settings.kernel.cell_timeout_seconds,
        max_timeout=settings.kernel.max_timeout_seconds,
        max_cells=settings.limits.max_cells,
        max_code_bytes=settings.limits.max_code_bytes,
        max_output_bytes=settings.limits.max_output_bytes,
        grace=settings.kernel.interrupt_grace_seconds,
        call_wait_seconds=settings.server.call_wait_seconds,
        network=settings.sandbox.network,
    )


def quotas(settings: Settings) -> Quotas:
    return Quotas(
        kernels=settings.limits.max_kernels,
        kernels_per_user=settings.limits.max_kernels_per_user,
        runs=settings.limits.max_runs,
        runs_per_user=settings.limits.max_runs_per_user,
        memory_per_user=settings.limits.max_memory_bytes_per_user,
        min_free_bytes=settings.limits.min_free_memory_bytes,
        requests_per_minute=settings.limits.requests_per_minute,
        burst=settings.limits.requests_burst,
    )


def kernels(settings: Settings) -> KernelConfig:
    kernel = settings.kernel
    return KernelConfig(
        quotas=quotas(settings),
        rules=KernelRules(restore=settings.checkpoints.auto_restore, replay=settings.checkpoints.replay),
        idle=IdleRules(hibernate_after=kernel.hibernate_after_seconds, timeout=kernel.idle_timeout_seconds),
        autosave=AutosaveRules(
            interval=settings.checkpoints.snapshot_interval_seconds,
            max_bytes=settings.checkpoints.max_snapshot_bytes,
            shutdown_timeout=settings.server.shutdown_stall_seconds,
        ),
    )


def space(settings: Settings) -> WorkspaceLimits:
    """The quota of workspaces. A folder that the operator chose has none unless set: it may hold other files."""
    is_limited = {"max_workspace_bytes", "max_workspace_files"} & settings.limits.model_fields_set
    if settings.kernel.workspace is not None and not is_limited:
        return WorkspaceLimits(bytes=0, files=0)
    return WorkspaceLimits(bytes=settings.limits.max_workspace_bytes, files=settings.limits.max_workspace_files)


def calls(settings: Settings) -> CallLimits:
    """Limits of calls from cells to capabilities."""
    given = settings.capabilities
    return CallLimits(
        timeout=given.call_timeout_seconds,
        max_timeout=settings.kernel.max_timeout_seconds,
        per_run=given.max_calls_per_run,
        result=given.max_result_chars,
    )


def untrusted_callers(settings: Settings) -> UntrustedCallerPolicy:
    limits = KernelLimits(
        memory=settings.limits.max_memory_bytes,
        cpu=settings.limits.max_cpu_seconds,
        processes=settings.limits.max_processes,
        fuel=settings.wasm.fuel,
    )
    output, memory = settings.limits.max_output_bytes, settings.wasm.memory_bytes
    return UntrustedCallerPolicy(
        hosts=settings.capabilities.private_hosts, limits=limits, output=output, wasm_memory=memory
    )


def approvals(settings: Settings) -> ApprovalRules:
    given = settings.capabilities
    return ApprovalRules(
        rules={what: Approve(word) for what, word in given.approve.items()},
        unasked=given.allow_unattended,
        timeout=given.approve_timeout_seconds,
    )


def workspace(settings: Settings) -> Callable[[Notebook], str]:
    if settings.auth.method != "none" and settings.kernel.workspace is not None:
        raise InvalidRequest("With authentication every notebook needs its own folder: unset kernel.workspace.")

    one = settings.kernel.workspace
    made = str(settings.store.data_dir / "workspaces")  # computed once: `path` is called several times in each call

    def path(notebook: Notebook) -> str:
        if one is not None and notebook.owner == LOCAL:  # only the local user works in this folder
            return str(one)
        return os.path.join(made, notebook.origin.root if notebook.origin else notebook.id)  # noqa: PTH118

    return path


def spec(settings: Settings) -> Callable[[Notebook], KernelSpec]:
    """Builds what a kernel is started with: the notebook's policy overrides the settings."""
    workspace_of = workspace(settings)
    granted, network = mounts(settings), settings.sandbox.network
    default_memory = settings.limits.max_memory_bytes, settings.wasm.memory_bytes

    def of(notebook: Notebook) -> KernelSpec:
        own = notebook.policy
        return KernelSpec(
            notebook=notebook.id,
            name=notebook.name,
            owner=notebook.owner,
            workspace=workspace_of(notebook),
            python=own.python,
            ipython=own.shell == "ipython",
            network=network if own.network is None else still_granted(own.network, network),
            mounts=granted,
            limits=KernelLimits(
                memory=own.memory if own.memory is not None else default_memory[notebook.runtime != "python"],
                fuel=settings.wasm.fuel if own.fuel is None else own.fuel,
                cpu=settings.limits.max_cpu_seconds if own.cpu is None else own.cpu,
                processes=settings.limits.max_processes if own.processes is None else own.processes,
                file=settings.limits.max_workspace_bytes,
            ),
            checkpoint_bytes=settings.checkpoints.max_memory_bytes,
            document=notebook.document,
        )

    return of


def mounts(settings: Settings) -> tuple[Mount, ...]:
    return tuple(_mount(entry) for entry in settings.sandbox.mounts)


def _mount(entry: str) -> Mount:
    path, colon, how = entry.rpartition(":")
    if colon and how in ("ro", "rw"):
        return Mount(str(Path(path).expanduser().resolve()), writable=how == "rw")
    return Mount(str(Path(entry).expanduser().resolve()))
