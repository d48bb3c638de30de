"""Settings as the rules that rooms of the core are given."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from quire.core.capabilities.approvals import ApprovalRules
from quire.core.capabilities.model import Approve
from quire.core.checkpoints.autosave import AutosaveRules
from quire.core.errors import InvalidRequest
from quire.core.kernels.idle import IdleRules
from quire.core.kernels.pool import KernelRules
from quire.core.kernels.services import KernelConfig
from quire.core.limits.network_rules import still_granted
from quire.core.limits.quotas import Quotas
from quire.core.limits.validation import Limits
from quire.core.limits.workspace_quota import SpaceRules
from quire.core.model import LOCAL, KernelLimits, KernelSpec, Mount, Notebook
from quire.settings import Settings

_INTERPRETER_S = 30.0  # seconds a program may take to show that it is a Python interpreter
_OLDEST = (3, 11)  # Python that kernels run on


def check(settings: Settings, *, kernels: bool) -> None:
    """Raises InvalidRequest for settings that cannot work together or on this machine, before anything is started."""
    workspace(settings)
    if not kernels:
        return
    for mount in mounts(settings):
        if not os.path.lexists(mount.path):
            raise InvalidRequest(f"Setting 'mounts' cannot name {mount.path!r}: there is no such folder.")
    if "python" in settings.model_fields_set and (why_not := _why_no_interpreter(settings.python)):
        raise InvalidRequest(f"Setting 'python' cannot be {settings.python!r}: {why_not}.")


def _why_no_interpreter(named: str) -> str:
    """Why kernels cannot run on this program; "" where they can."""
    found = shutil.which(named)
    if found is None:
        return "it is not an executable file" if Path(named).exists() else "there is no such program"
    show = "import sys; print('python', *sys.version_info[:2])"
    try:
        asked = subprocess.run(
            [found, "-S", "-c", show], stdin=subprocess.DEVNULL, capture_output=True, timeout=_INTERPRETER_S
        )
    except subprocess.TimeoutExpired:
        return f"it did not say within {_INTERPRETER_S:g} s that it is a Python interpreter"
    except OSError:
        return "it is not a Python interpreter"
    version = re.fullmatch(rb"python (\d{1,3}) (\d{1,3})\s*", asked.stdout)
    if version is None:
        return "it is not a Python interpreter"
    major, minor = int(version[1]), int(version[2])
    return "" if (major, minor) >= _OLDEST else f"it is Python {major}.{minor}, and kernels need 3.11 or newer"


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


def kernels(settings: Settings) -> KernelConfig:
    return KernelConfig(
        quotas=quotas(settings),
        rules=KernelRules(restore=settings.auto_restore, replay=settings.replay),
        idle=IdleRules(hibernate_after=settings.hibernate_after, timeout=settings.idle_timeout),
        autosave=AutosaveRules(
            interval=settings.snapshot_interval, max_bytes=settings.snapshot_bytes, shutdown_timeout=settings.auto_save
        ),
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


def workspace(settings: Settings) -> Callable[[Notebook], str]:
    if settings.auth != "none" and settings.workspace is not None:
        raise InvalidRequest("With auth every notebook needs a folder of its own: unset the setting workspace.")

    one, made = settings.workspace, str(settings.data_dir / "workspaces")  # asked for several times in each call

    def path(notebook: Notebook) -> str:
        if one is not None and notebook.owner == LOCAL:  # nobody else works in the local user's folder
            return str(one)
        return os.path.join(made, notebook.origin.root if notebook.origin else notebook.id)  # noqa: PTH118

    return path


def spec(settings: Settings) -> Callable[[Notebook], KernelSpec]:
    """What a notebook's own policy says, over the settings."""
    place = workspace(settings)
    granted = mounts(settings)
    usual = settings.max_memory_bytes, settings.wasm_memory_bytes

    def of(notebook: Notebook) -> KernelSpec:
        own = notebook.policy
        return KernelSpec(
            notebook=notebook.id,
            name=notebook.name,
            owner=notebook.owner,
            workspace=place(notebook),
            python=own.python,
            ipython=own.shell == "ipython",
            network=settings.network if own.network is None else still_granted(own.network, settings.network),
            mounts=granted,
            limits=KernelLimits(
                memory=own.memory if own.memory is not None else usual[notebook.runtime != "python"],
                fuel=settings.wasm_fuel if own.fuel is None else own.fuel,
                cpu=settings.max_cpu_seconds if own.cpu is None else own.cpu,
                processes=settings.max_processes if own.processes is None else own.processes,
                file=settings.workspace_bytes,
            ),
            checkpoint_bytes=settings.checkpoint_bytes,
            document=notebook.document,
        )

    return of


def mounts(settings: Settings) -> tuple[Mount, ...]:
    return tuple(_mount(entry) for entry in settings.mounts)


def _mount(entry: str) -> Mount:
    path, colon, how = entry.rpartition(":")
    if colon and how in ("ro", "rw"):
        return Mount(str(Path(path).expanduser().resolve()), writable=how == "rw")
    return Mount(str(Path(entry).expanduser().resolve()))
