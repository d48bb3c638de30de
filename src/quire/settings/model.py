"""The settings: one class for each section of quire.toml, one field for each key.

Flags, variables, `quire config`, docs/settings.md and the names of version 0.1 follow from these fields.
"""

import sys
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field

from quire import platform_compat
from quire.settings.types import (
    DEFAULT_TOOLSETS,
    AbsolutePath,
    ApproveRules,
    ExistingFolder,
    Hosts,
    JupyterUrls,
    Network,
    PrivateHosts,
    SandboxMode,
    SecretReference,
    Toolsets,
    Variables,
    Words,
)


def _setting(default: Any, old: str, description: str, **constraints: Any) -> Any:
    """A field: its default or a function that returns it, its name in version 0.1, and its description."""
    given = {"default_factory": default} if callable(default) else {"default": default}
    return Field(**given, description=description, json_schema_extra={"old": old}, **constraints)


def _user_data_dir() -> Path:
    return Path(platformdirs.user_data_dir("quire", appauthor=False))


def _user_cache_dir() -> Path:
    return Path(platformdirs.user_cache_dir("quire", appauthor=False))


def _most_memory() -> int:
    return platform_compat.memory() * 3 // 4


class Section(BaseModel):
    # deferred: one validator of all sections is built, and only when settings are loaded
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)


class ServerSettings(Section):
    """How clients reach the server and what it offers"""

    transport: Literal["stdio", "http"] = _setting("stdio", "transport", "How clients reach the server")
    host: str = _setting("127.0.0.1", "host", "Address that HTTP listens on")
    port: int = _setting(8750, "port", "Port that HTTP listens on; 0 uses a free one", ge=0, le=65535)
    public_url: str | None = _setting(None, "public_url", "Address at which clients reach the server, without /mcp")
    allowed_hosts: Hosts = _setting(
        (), "allowed_hosts", "Host names accepted in HTTP requests besides the server's address"
    )
    toolsets: Toolsets = _setting(
        DEFAULT_TOOLSETS,
        "toolsets",
        "Tool sets to offer, or all; default means those offered if unset, with authentication also users",
    )
    call_wait_seconds: float = _setting(
        50, "patience", "Seconds a call waits for a run before it answers that the run continues", gt=0
    )
    max_result_chars: int = _setting(8_000, "result_chars", "Characters of output in one answer", ge=500)
    shutdown_stall_seconds: float = _setting(
        5, "auto_save", "Seconds that saving namespaces may delay the server's shutdown; 0 saves none", ge=0
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "warning", "log_level", "Least severe messages that are logged to stderr"
    )


class StoreSettings(Section):
    """Where notebooks and the audit log are stored"""

    data_dir: AbsolutePath = _setting(
        _user_data_dir, "data_dir", "Folder of notebooks, outputs and workspaces; the platform's default if unset"
    )
    kind: Literal["sql", "memory"] = _setting(
        "sql", "store", "Where notebooks are stored: sql in data_dir; memory in a temporary folder, deleted at the end"
    )
    assets_dir: Path = _setting(
        _user_cache_dir,
        "assets_dir",
        "Folder of WebAssembly programs and copies of IPython; the platform's default if unset",
    )
    audit_file_bytes: int = _setting(
        64 * 2**20, "audit_bytes", "Bytes of an audit log file before the next one is started", ge=100_000
    )
    audit_files: int = _setting(10, "audit_files", "Audit log files to keep; the oldest is deleted first", ge=2)
    audit_required: bool = _setting(
        False, "audit_required", "Refuse calls while the audit log cannot be written, instead of only reporting it"
    )


class KernelSettings(Section):
    """The kernels that run cells, and their timeouts"""

    runtime: Literal["python", "wasm-python", "wasm-javascript"] = _setting(
        "python", "runtime", "Runtime of notebooks that name none; if unset, wasm-python on systems other than Linux"
    )
    python: str = _setting(lambda: sys.executable, "python", "Python interpreter of the kernels, 3.11 or newer")
    preload: Words = _setting(
        ("IPython", "numpy", "pandas", "matplotlib.pyplot"),
        "preload",
        "Modules imported once for all kernels before they start, if installed",
    )
    workspace: ExistingFolder | None = _setting(
        None, "workspace", "One working folder for all notebooks; if unset, each has its own in the data directory"
    )
    spare_kernels: int = _setting(1, "spare_kernels", "Kernels kept ready for new notebooks", ge=0, le=16)
    cell_timeout_seconds: float = _setting(
        30, "cell_timeout", "Seconds a run may take if the call gives no timeout", gt=0
    )
    max_timeout_seconds: float = _setting(86_400, "max_timeout", "Largest timeout a call may give, in seconds", gt=0)
    interrupt_grace_seconds: float = _setting(2, "grace", "Seconds between interrupting a run and killing it", gt=0)
    hibernate_after_seconds: float = _setting(
        3_600, "hibernate_after", "Seconds until an idle kernel that can be saved completely hibernates; 0 never", ge=0
    )
    idle_timeout_seconds: float = _setting(
        86_400, "idle_timeout", "Seconds until any idle kernel is saved and ended; 0 never", ge=0
    )


class CheckpointSettings(Section):
    """Checkpoints in memory, snapshots on disk, and restoring them"""

    max_memory_bytes: int = _setting(
        256 * 2**20,
        "checkpoint_bytes",
        "Bytes of memory that checkpoints of a notebook may use besides its kernel; 0 takes none",
        ge=0,
    )
    snapshot_interval_seconds: float = _setting(
        2, "snapshot_interval", "Seconds between automatic snapshots of a notebook; 0 takes none", ge=0
    )
    max_snapshot_bytes: int = _setting(
        8 * 2**30, "snapshot_bytes", "Bytes of one snapshot, and of all snapshots of a notebook on disk", gt=0
    )
    auto_restore: bool = _setting(
        True, "auto_restore", "Restore a notebook's namespace from disk when it is first used"
    )
    replay: Literal["never", "ask", "always"] = _setting(
        "ask", "replay", "Cells that create what was not restored: ignore them, name them, or run them again"
    )


class SandboxSettings(Section):
    """Isolation of kernels, and what code may reach"""

    mode: SandboxMode = _setting(
        "auto", "sandbox", "Sandbox layers of kernels: auto for all available ones, require:LAYERS, require:all, or off"
    )
    network: Network = _setting(
        (), "network", "Hosts that code may connect to, as in pypi.org,*.pythonhosted.org,10.0.0.5:8080; none if unset"
    )
    mounts: Words = _setting(
        (), "mounts", "Folders besides the workspace that code may read, or with :rw at the end also write"
    )
    environment: Variables = _setting(
        (), "environment", "Environment variables of the server that code gets; without a sandbox it gets all"
    )


class LimitSettings(Section):
    """Limits of cells, notebooks, users and HTTP; 0 means no limit where it is allowed"""

    max_cells: int = _setting(10_000, "max_cells", "Cells of a notebook", gt=0)
    max_code_bytes: int = _setting(1_000_000, "max_code_bytes", "Bytes of a cell's source", gt=0)
    max_output_bytes: int = _setting(
        4_000_000,
        "max_output_bytes",
        "Bytes of output kept of a run: its beginning and end; the rest is counted",
        ge=10_000,
    )
    max_file_bytes: int = _setting(
        16 * 2**20, "max_file_bytes", "Bytes of a file that one call reads or writes", ge=1_000, le=2**25
    )
    max_workspace_bytes: int = _setting(
        20 * 2**30, "workspace_bytes", "Bytes of a notebook's workspace; 0 no limit", ge=0
    )
    max_workspace_files: int = _setting(
        1_000_000, "workspace_files", "Files and folders of a notebook's workspace; 0 no limit", ge=0
    )
    max_memory_bytes: int = _setting(
        _most_memory,
        "max_memory_bytes",
        "Bytes of data of each process of a notebook, three quarters of the machine's memory; 0 no limit",
        ge=0,
    )
    max_cpu_seconds: float = _setting(0, "max_cpu_seconds", "Seconds of processor time of a run; 0 no limit", ge=0)
    max_processes: int = _setting(500, "max_processes", "Processes of a notebook at once; 0 no limit", ge=0)
    max_kernels: int = _setting(
        500, "max_kernels", "Live kernels of all users; above it the one idle longest hibernates; 0 no limit", ge=0
    )
    max_kernels_per_user: int = _setting(
        100, "max_kernels_per_user", "Live kernels of a user, as max_kernels; 0 no limit", ge=0
    )
    max_runs: int = _setting(
        200, "max_runs", "Concurrent runs of all users; more are queued, users take turns; 0 no limit", ge=0
    )
    max_runs_per_user: int = _setting(100, "max_runs_per_user", "Concurrent runs of a user; 0 no limit", ge=0)
    max_notebooks_per_user: int = _setting(10_000, "max_notebooks_per_user", "Notebooks of a user; 0 no limit", ge=0)
    max_memory_bytes_per_user: int = _setting(
        _most_memory,
        "max_memory_bytes_per_user",
        "Bytes of memory of all kernels of a user above which no new one starts; 0 no limit",
        ge=0,
    )
    min_free_memory_bytes: int = _setting(
        lambda: platform_compat.memory() // 10,
        "min_free_bytes",
        "Bytes of memory to keep free: below it checkpoints are dropped, then idle kernels hibernate; 0 never",
        ge=0,
    )
    requests_per_minute: float = _setting(
        30_000, "requests_per_minute", "Requests of a user per minute over HTTP; 0 no limit", ge=0
    )
    requests_burst: int = _setting(3_000, "requests_burst", "Requests of a user at once after a pause", gt=0)
    max_request_bytes: int = _setting(
        lambda given: 3 * given.get("max_code_bytes", 0) + 2**20,
        "max_request_bytes",
        "Bytes of a request; if unset, what the source of a cell can take as JSON plus 1 MiB; 0 no limit",
        ge=0,
    )
    max_connections: int = _setting(500, "max_connections", "Open HTTP connections; 0 no limit", ge=0)
    max_sessions: int = _setting(
        1_000, "max_sessions", "Legacy HTTP sessions; above it the one idle longest is closed; 0 no limit", ge=0
    )
    request_timeout_seconds: float = _setting(
        30, "request_timeout", "Seconds a client may take to send a request, or pause while it reads an answer", gt=0
    )


class AuthSettings(Section):
    """Authentication of clients over HTTP"""

    method: Literal["none", "tokens", "jwt", "oidc"] = _setting(
        "none", "auth", "HTTP authentication method. With none, every local caller is the local user"
    )
    insecure: bool = _setting(False, "insecure", "Accept connections from other machines without authentication")
    issuer: str | None = _setting(None, "auth_issuer", "Issuer of the JWTs, or address of the OpenID Connect issuer")
    audience: str | None = _setting(None, "auth_audience", "Audience that a JWT must have")
    keys: str | None = _setting(
        None,
        "auth_keys",
        "Keys that verify JWTs: address of a JWKS, or a public key as file:/path or env:NAME",
    )
    algorithm: str = _setting("RS256", "auth_algorithm", "Algorithm that JWTs are signed with")
    scope: str | None = _setting(None, "auth_scope", "Scope that a caller must have")
    admin_scope: str = _setting("quire:admin", "auth_admin_scope", "Scope that makes a caller an admin")
    client_id: str | None = _setting(None, "auth_client_id", "Client id of this server at the OpenID Connect issuer")
    client_secret: SecretReference = _setting(
        None, "auth_client_secret", "Client secret of this server, as file:/path or env:NAME"
    )


class CapabilitySettings(Section):
    """Calls from cells to other MCP servers, and approval of calls"""

    private_hosts: PrivateHosts = _setting(
        (),
        "capability_hosts",
        "Hosts in private networks, as host or host:port, from which every user may install capabilities",
    )
    connect_timeout_seconds: float = _setting(
        30, "connect_timeout", "Seconds an MCP server may take to answer when it is connected", gt=0
    )
    call_timeout_seconds: float = _setting(
        60, "call_timeout", "Seconds a call of a capability may take if the code gives no _timeout", gt=0
    )
    max_calls_per_run: int = _setting(10_000, "max_calls", "Calls of capabilities that one run may make", gt=0)
    max_result_chars: int = _setting(
        1_000_000, "call_chars", "Characters of a capability's result that the code gets at once", ge=1_000
    )
    approve: ApproveRules = _setting(
        dict,
        "approve",
        "Approval of calls, by capability.method, capability.* or *: allow, ask, ask_or_deny or deny",
    )
    allow_unattended: bool = _setting(
        False, "approve_unasked", "Allow calls with the rule ask if no person can be asked"
    )
    approve_timeout_seconds: float = _setting(
        120, "approve_timeout", "Seconds a person has to approve a call before it is denied", gt=0
    )


class WasmSettings(Section):
    """Kernels in WebAssembly"""

    python: Literal["auto", "plain", "science"] = _setting(
        "auto", "wasm_python", "Python of wasm-python: plain, science with libraries, or auto: science if installed"
    )
    memory_bytes: int = _setting(
        512 * 2**20, "wasm_memory_bytes", "Bytes of memory of a WebAssembly sandbox", ge=2**26, le=2**32
    )
    fuel: int = _setting(0, "wasm_fuel", "Instructions of a run in a WebAssembly sandbox; 0 no limit", ge=0)
    open_files: int = _setting(64, "wasm_open_files", "Open files of a WebAssembly sandbox", ge=1, le=10_000)


class JupyterSettings(Section):
    """Jupyter servers whose documents and kernels notebooks use"""

    url: JupyterUrls = _setting((), "jupyter_url", "Jupyter servers of documents and kernels, each as URL or NAME=URL")
    token: Words = _setting(
        (), "jupyter_token", "Their tokens in the same order, each literally or as file:/path or env:NAME"
    )
    kernel_url: JupyterUrls = _setting(
        (), "jupyter_kernel_url", "Jupyter servers that run these documents, in the same order, if they are others"
    )
    kernel_token: Words = _setting((), "jupyter_kernel_token", "The tokens of jupyter.kernel_url, in the same order")
    document: str | None = _setting(
        None,
        "jupyter_document",
        "Path of a notebook on the first server, in use as `default` unless a client uses another",
    )
    trust_outputs: bool = _setting(
        False, "jupyter_trust_outputs", "Mark code cells that Quire inserts as trusted: JupyterLab runs their scripts"
    )


def _section() -> Any:
    return Field({})  # the defaults of its keys


class Settings(Section):
    server: ServerSettings = _section()
    store: StoreSettings = _section()
    kernel: KernelSettings = _section()
    checkpoints: CheckpointSettings = _section()
    sandbox: SandboxSettings = _section()
    limits: LimitSettings = _section()
    auth: AuthSettings = _section()
    capabilities: CapabilitySettings = _section()
    wasm: WasmSettings = _section()
    jupyter: JupyterSettings = _section()
