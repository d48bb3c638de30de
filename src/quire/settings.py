"""Every knob, frozen, each with its unit: from quire.toml, over it QUIRE_… variables, over those flags."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from quire import platform_compat
from quire.core.limits import network_rules, sandbox_layers
from quire.core.phrases import suggestion

DEFAULT_TOOLSETS = ("notebook", "repl", "capabilities", "timeline")
TOOLSETS = (*DEFAULT_TOOLSETS, "files", "sandbox", "users", "jupyter")
"""The tool sets there are, in the order that decides when two name the same tool."""

PREFIX = "QUIRE_"
CONFIG = "QUIRE_CONFIG"  # names the file; not a setting itself


class BadSetting(Exception):
    """A setting that does not exist or cannot have that value; the message names it."""


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    data_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("quire", appauthor=False)),
        description="Folder of notebooks, outputs and workspaces; the platform's own place unless set",
    )
    store: Literal["sql", "memory"] = Field(
        "sql",
        description="Where notebooks are kept: sql in data_dir; memory in a temporary folder, deleted at the end",
    )
    transport: Literal["stdio", "http"] = Field("stdio", description="How clients reach the server")
    host: str = Field("127.0.0.1", description="Address HTTP listens on")
    port: int = Field(8750, ge=0, le=65535, description="Port HTTP listens on; 0 takes a free one")
    auth: Literal["none", "tokens", "jwt", "oidc"] = Field(
        "none", description="What callers over HTTP prove who they are by; none takes this machine's for the local user"
    )
    auth_issuer: str | None = Field(None, description="Address of who issues JWTs, or of the OpenID Connect issuer")
    auth_audience: str | None = Field(None, description="Audience a JWT must be for")
    auth_keys: str | None = Field(
        None, description="What JWTs are checked with: the address of a JWKS, or a public key as file:/path or env:NAME"
    )
    auth_algorithm: str = Field("RS256", description="Algorithm JWTs are signed with")
    auth_scope: str | None = Field(None, description="Scope a caller must have from the issuer")
    auth_admin_scope: str = Field("quire:admin", description="Scope that makes a caller of the issuer's an admin")
    auth_client_id: str | None = Field(None, description="What the OpenID Connect issuer knows this server by")
    auth_client_secret: str | None = Field(None, description="Its secret, as file:/path or env:NAME")
    public_url: str | None = Field(None, description="Address clients reach this server at, without /mcp")
    allowed_hosts: tuple[str, ...] = Field((), description="Names the HTTP server may be called by, beside its address")
    insecure: bool = Field(False, description="Whether other machines may reach the server without auth")
    capability_hosts: tuple[str, ...] = Field(
        (), description="Hosts in private networks, as host or host:port, that every user may install by url"
    )
    toolsets: tuple[str, ...] = Field(
        DEFAULT_TOOLSETS,
        description="Tool sets to offer, or all; default stands for those offered unless set, with auth also users",
    )
    runtime: Literal["python", "wasm-python", "wasm-javascript"] = Field(
        "python", description="Runtime of notebooks that name none; elsewhere than on Linux wasm-python unless set"
    )
    python: str = Field(default_factory=lambda: sys.executable, description="Interpreter of the kernels, 3.11 or newer")
    preload: tuple[str, ...] = Field(
        ("IPython", "numpy", "pandas", "matplotlib.pyplot"),
        description="Modules imported ahead, once for all kernels, where installed",
    )
    workspace: Path | None = Field(
        None, description="One folder all notebooks work in; unset, each has its own in the data directory"
    )
    cell_timeout: float = Field(30, gt=0, description="Seconds a run may take where the call names no timeout")
    max_timeout: float = Field(86_400, gt=0, description="Largest timeout a call may name, in seconds")
    grace: float = Field(2, gt=0, description="Seconds between an interrupt and the kill")
    patience: float = Field(50, gt=0, description="Seconds a call waits before it answers that the run goes on")
    hibernate_after: float = Field(
        3_600, ge=0, description="Seconds until an unused kernel that loses nothing by it sleeps on disk; 0 never"
    )
    idle_timeout: float = Field(86_400, ge=0, description="Seconds until any unused kernel is saved and ended; 0 never")
    max_cells: int = Field(10_000, gt=0, description="Cells a notebook may have")
    max_code_bytes: int = Field(1_000_000, gt=0, description="Bytes of source a cell may have")
    max_output_bytes: int = Field(
        4_000_000,
        ge=10_000,
        description="Bytes of output kept of one run: beginning and end, the rest counted",
    )
    checkpoint_bytes: int = Field(
        256 * 2**20,
        ge=0,
        description="Bytes of memory a notebook's checkpoints may hold beyond its kernel; 0 takes none",
    )
    snapshot_interval: float = Field(
        2, ge=0, description="Seconds between snapshots of a notebook that are taken by themselves; 0 takes none"
    )
    snapshot_bytes: int = Field(
        8 * 2**30, gt=0, description="Bytes one snapshot may hold, and a notebook's snapshots may take on disk"
    )
    auto_save: float = Field(5, ge=0, description="Seconds the server's end may take to save namespaces; 0 saves none")
    auto_restore: bool = Field(True, description="Bring a notebook's namespace back from disk when it is first used")
    replay: Literal["never", "ask", "always"] = Field(
        "ask", description="Cells that make what did not come back: left alone, named to be run again, or run again"
    )
    max_file_bytes: int = Field(
        16 * 2**20, ge=1_000, le=2**25, description="Bytes of a file that one call reads or writes"
    )
    workspace_bytes: int = Field(20 * 2**30, ge=0, description="Bytes a notebook's workspace may hold; 0 no limit")
    workspace_files: int = Field(
        1_000_000, ge=0, description="Files and folders a notebook's workspace may hold; 0 no limit"
    )
    spare_kernels: int = Field(1, ge=0, le=16, description="Kernels kept ready for new notebooks")
    max_memory_bytes: int = Field(
        default_factory=lambda: platform_compat.memory() * 3 // 4,
        ge=0,
        description="Bytes of data each process of a notebook may have, three quarters of the machine's; 0 no limit",
    )
    max_cpu_seconds: float = Field(0, ge=0, description="Seconds of processor time a run may take; 0 no limit")
    max_processes: int = Field(500, ge=0, description="Processes a notebook may have at once; 0 no limit")
    sandbox: str = Field(
        "auto",
        description="Walls around kernels: auto for all this machine gives, require:LAYERS or require:all, or off",
    )
    network: tuple[str, ...] = Field(
        (), description="Hosts code may connect to, as in pypi.org,*.pythonhosted.org,10.0.0.5:8080; none unless set"
    )
    mounts: tuple[str, ...] = Field(
        (), description="Folders code may read beside its workspace, or write where :rw follows"
    )
    environment: tuple[str, ...] = Field(
        (), description="Variables of the server's environment that code has too; without a sandbox it has all"
    )
    assets_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_cache_dir("quire", appauthor=False)),
        description="Folder of programs for WebAssembly and copies of IPython; the platform's own place unless set",
    )
    wasm_python: Literal["auto", "plain", "science"] = Field(
        "auto", description="Python of wasm-python: plain, or science with libraries; auto has them where installed"
    )
    wasm_memory_bytes: int = Field(
        512 * 2**20, ge=2**26, le=2**32, description="Bytes of memory a WebAssembly sandbox may have"
    )
    wasm_fuel: int = Field(0, ge=0, description="Instructions a run in a WebAssembly sandbox may take; 0 no limit")
    wasm_open_files: int = Field(64, ge=1, le=10_000, description="Files a WebAssembly sandbox may have open at once")
    jupyter_url: tuple[str, ...] = Field(
        (), description="Jupyter servers whose documents and kernels notebooks may have, each as URL or NAME=URL"
    )
    jupyter_token: tuple[str, ...] = Field(
        (), description="Their tokens in the same order, each as it is, or as file:/path or env:NAME"
    )
    jupyter_kernel_url: tuple[str, ...] = Field(
        (), description="Jupyter servers that their documents run on, in the same order, where that is another"
    )
    jupyter_kernel_token: tuple[str, ...] = Field((), description="The tokens of these, in the same order")
    jupyter_document: str | None = Field(
        None,
        description="Path of a notebook on the first of them, in use as `default` unless a client uses another",
    )
    jupyter_trust_outputs: bool = Field(
        False, description="JupyterLab trusts the outputs of code cells that Quire inserts: scripts in them run"
    )
    max_kernels: int = Field(
        500, ge=0, description="Live kernels of all users; for one more the longest unused sleeps on disk; 0 no limit"
    )
    max_kernels_per_user: int = Field(100, ge=0, description="The same of one user; 0 no limit")
    max_runs: int = Field(200, ge=0, description="Runs under way at once; more wait, users by turns; 0 no limit")
    max_runs_per_user: int = Field(100, ge=0, description="The same of one user; 0 no limit")
    max_notebooks_per_user: int = Field(10_000, ge=0, description="Notebooks a user may have; 0 no limit")
    max_memory_bytes_per_user: int = Field(
        default_factory=lambda: platform_compat.memory() * 3 // 4,
        ge=0,
        description="Bytes a user's kernels may hold together for one more to start; 0 no limit",
    )
    min_free_bytes: int = Field(
        default_factory=lambda: platform_compat.memory() // 10,
        ge=0,
        description="Bytes of memory to stay available: below it checkpoints go, then idle kernels sleep; 0 never",
    )
    requests_per_minute: float = Field(
        30_000, ge=0, description="Requests a user may make a minute; stdio does not count; 0 no limit"
    )
    requests_burst: int = Field(3_000, gt=0, description="Requests a user may make at once, after a rest")
    max_request_bytes: int = Field(
        default_factory=lambda given: 3 * given.get("max_code_bytes", 0) + 2**20,
        ge=0,
        description="Bytes one request may have; unset, what a cell's source may take as JSON and 1 MiB; 0 no limit",
    )
    max_connections: int = Field(500, ge=0, description="HTTP connections open at once; 0 no limit")
    max_sessions: int = Field(
        1_000, ge=0, description="HTTP sessions of the older protocol; for one more the longest idle ends; 0 no limit"
    )
    request_timeout: float = Field(
        30, gt=0, description="Seconds a client may take to send a request, or stop reading its answer"
    )
    connect_timeout: float = Field(30, gt=0, description="Seconds an MCP server has to answer when it is connected to")
    call_timeout: float = Field(
        60, gt=0, description="Seconds a capability's call may take where the code names no _timeout"
    )
    max_calls: int = Field(10_000, gt=0, description="Calls of capabilities one run may make")
    call_chars: int = Field(
        1_000_000,
        ge=1_000,
        description="Characters of a capability's answer that reach the code at once",
    )
    approve: dict[str, Literal["never", "ask", "always"]] = Field(
        default_factory=dict,
        description="Whether a person is asked before a call, by capability.method, capability.* or *",
    )
    approve_unasked: bool = Field(
        False, description="Whether calls that would be asked about are made where nobody can be asked"
    )
    approve_timeout: float = Field(120, gt=0, description="Seconds a person has to approve a call; then it is denied")
    audit_bytes: int = Field(
        64 * 2**20, ge=100_000, description="Bytes of the audit log's file until the next is begun"
    )
    audit_files: int = Field(10, ge=2, description="Files of the audit log that are kept; the oldest goes first")
    audit_required: bool = Field(
        False, description="Whether calls are refused while the audit log cannot be written; else only that is said"
    )
    result_chars: int = Field(8_000, ge=500, description="Characters of output shown in one answer")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "warning", description="What goes to the log on stderr"
    )

    @field_validator(
        *("toolsets", "preload", "network", "mounts", "environment", "allowed_hosts", "capability_hosts"),
        *("jupyter_url", "jupyter_token", "jupyter_kernel_url", "jupyter_kernel_token"),
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("approve", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        return {what.strip(): word.strip() for what, _, word in pairs}

    @field_validator("jupyter_url", "jupyter_kernel_url")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if not re.fullmatch(r"([\w.-]+=)?https?://[^\s/]\S*", each):
                raise ValueError(
                    "a Jupyter server is written as in http://localhost:8888, or lab=http://localhost:8888"
                )
        return value

    @field_validator("toolsets")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value == ("all",):
            return TOOLSETS
        value = tuple(name for each in value for name in (DEFAULT_TOOLSETS if each == "default" else (each,)))
        unknown = [name for name in value if name not in TOOLSETS]
        if unknown or not value:
            raise ValueError(f"there is no tool set {', '.join(unknown)!r}; there are {', '.join(TOOLSETS)}")
        return tuple(dict.fromkeys(value))

    @field_validator("sandbox")
    @classmethod
    def _layers(cls, value: str) -> str:
        sandbox_layers.required(value)
        return value

    @field_validator("network")
    @classmethod
    def _hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        network_rules.rules(value)
        return value

    @field_validator("capability_hosts", "allowed_hosts")
    @classmethod
    def _places(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for each in value:
            network_rules.check_place(each, wildcards=info.field_name == "allowed_hosts")
        return value

    @field_validator("environment")
    @classmethod
    def _variables(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if not re.fullmatch(r"[^\s=]+", each):
                raise ValueError(f"{each!r} is no name of a variable: write HF_TOKEN")
        return value

    @field_validator("auth_client_secret")
    @classmethod
    def _referred(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("file:", "env:")):
            raise ValueError("a secret is referred to, as file:/path or env:NAME")
        return value

    @field_validator("data_dir", "workspace")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return value.expanduser().resolve() if value is not None else None

    @field_validator("workspace")
    @classmethod
    def _is_folder(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_dir():
            raise ValueError("there is no such folder")
        return value


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """Settings from file, environment and flags, the later over the earlier."""
    environ = os.environ if environ is None else environ
    file = config_file(config, environ)
    must = config is not None or CONFIG in environ
    given = {**_from_file(file, must), **_from_environment(environ)}
    flags = {name: value for name, value in (flags or {}).items() if value is not None}
    _refuse_unknown(flags, "in the call")
    given.update(flags)
    try:
        return Settings(**given)
    except ValidationError as error:
        raise BadSetting(_sentence(error)) from None


def config_file(given: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """The settings file: the one given, the one the environment names, or the user's own. One in the
    working folder is not read unasked: a cloned project must not choose what runs here."""
    if given is not None:
        return given
    if CONFIG in environ:
        return Path(environ[CONFIG])
    return Path(platformdirs.user_config_dir("quire", appauthor=False)) / "quire.toml"


def _from_file(path: Path, must: bool) -> dict[str, Any]:
    if not must and not path.exists():
        return {}
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadSetting(f"The settings file {path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(f"The settings file {path} is not TOML: {error}.") from None
    _refuse_unknown(found, f"in {path}")
    return found


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name != CONFIG
    }
    _refuse_unknown(found, f"among the {PREFIX}… environment variables")
    return found


def _refuse_unknown(found: Mapping[str, Any], where: str) -> None:
    for name in found:
        if name not in Settings.model_fields:
            near = suggestion(name, list(Settings.model_fields))
            raise BadSetting(f"There is no setting {name!r} ({where}).{near} `quire serve --help` lists all.")


def _sentence(error: ValidationError) -> str:
    parts = []
    for each in error.errors():
        if each["type"] == "default_factory_not_called":
            continue  # it follows from another setting, and that is reported
        name = ".".join(map(str, each["loc"][:1])) or "settings"
        value = "what it is" if "secret" in name or "token" in name else _shown(each["input"])
        parts.append(f"Setting {name!r} cannot be {value}: {each['msg'].removeprefix('Value error, ')}.")
    return " ".join(parts)


def _shown(value: Any) -> str:
    return repr(str(value) if isinstance(value, Path) else value)
