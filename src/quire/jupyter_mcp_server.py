"""The command line and environment variables of jupyter-mcp-server, as settings of Quire."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from quire.settings import BadSetting

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from quire.core.app import App
    from quire.frontends.http.serve import HttpAccess

_JUPYTER = "http://localhost:8888"
_PORT = "4040"
_CELL_TIMEOUT = "120"  # seconds
_YES, _NO = ("1", "true", "t", "yes", "y", "on"), ("0", "false", "f", "no", "n", "off")

OPTIONS: dict[tuple[str, ...], str] = {
    ("transport",): "stdio (default) or streamable-http",
    ("host",): "Address HTTP listens on; 127.0.0.1 unless set",
    ("port",): f"Port HTTP listens on; {_PORT} unless set",
    ("jupyter-url",): "Jupyter server of documents and kernels",
    ("jupyter-token",): "Its token",
    ("document-url",): "Jupyter server of documents, where it is another",
    ("document-token",): "Its token",
    ("document-id",): "Path of the notebook that is in use as `default` from the start",
    ("runtime-url", "code-sandbox-url"): f"Jupyter server of kernels, where it is another; {_JUPYTER} unless set",
    ("runtime-token", "code-sandbox-token"): "Its token",
    ("runtime-id", "code-sandbox-id"): "Kernel that the notebook `default` runs in",
    ("start-new-runtime", "start-new-code-sandbox"): "Whether a kernel is started at once for `default`; true unless "
    "set",
    ("mcp-token",): "Token that clients over HTTP must send",
    ("insecure-mcp-noauth",): "Accept clients over HTTP without a token",
    ("execution-timeout",): f"Seconds a run may take where the call names no timeout; {_CELL_TIMEOUT} unless set",
    ("max-execution-timeout",): "Largest timeout a call may name, in seconds",
}
"""Names of an option, and its help. Its variables are the same names in capitals: --document-url, DOCUMENT_URL."""

_VARIABLES = {
    "execution-timeout": "JUPYTER_MCP_EXECUTION_TIMEOUT",
    "max-execution-timeout": "JUPYTER_MCP_MAX_EXECUTION_TIMEOUT",
}
"""Those that have another name."""

WITHOUT_EFFECT = (
    *("document-provider", "provider", "jupyterlab", "open-notebook-in-ui", "allowed-jupyter-mcp-tools"),
    *("otel-file", "reconnect-interval", "sandbox-variant"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("start",), default="start", help="start: serve MCP")
    for names, text in OPTIONS.items():
        flags = [f"--{name}" for name in names]
        alone: dict[str, Any] = {"nargs": "?", "const": "true"} if names[0].startswith("insecure") else {}
        parser.add_argument(*flags, dest=_key(names), metavar=_key(names).upper(), help=text, **alone)
    for name in WITHOUT_EFFECT:
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)


def _key(names: tuple[str, ...]) -> str:
    return names[0].replace("-", "_")


@dataclass(frozen=True, kw_only=True)
class Start:
    """What its command line asks for beside settings."""

    settings: dict[str, Any]
    token: str = field(default="", repr=False)  # that clients over HTTP must send; "" where they need none
    kernel: str = ""  # the id of the one that the document runs in
    starts_kernel: bool = True

    def with_token(self, access: HttpAccess) -> HttpAccess:
        if not self.token:
            return access
        from quire.frontends.http.auth import SharedTokenVerifier

        return replace(access, auth=SharedTokenVerifier(self.token))

    async def open_document(self, app: App, server: FastMCP[Any]) -> None:
        """Open the document that is named and start its kernel; where that fails, clients can still open others."""
        from quire.core.errors import QuireError
        from quire.core.notebooks.access import LOCAL_CALLER
        from quire.frontends.http import jupyter_mcp_server as routes
        from quire.frontends.mcp import default_document

        routes.register(server, app)
        if not app.jupyter.document:
            return
        try:
            notebook = await default_document.open_for(app, LOCAL_CALLER, self.kernel)
            if self.starts_kernel or self.kernel:
                async with app.kernels.lease(notebook):  # starts it
                    pass
        except QuireError as error:
            print(f"quire: {app.jupyter.document} is not open: {error}", file=sys.stderr, flush=True)


def start(given: Mapping[str, Any], environ: Mapping[str, str]) -> Start:
    """Options over variables. Raises BadSetting."""
    values = {_key(names): _value(names, given, environ) for names in OPTIONS}
    for name in WITHOUT_EFFECT:
        if given.get(name.replace("-", "_")) is not None:
            print(f"quire: --{name} has no effect here.", file=sys.stderr, flush=True)
    http = _is_http(values["transport"])
    no_auth = _boolean("insecure-mcp-noauth", values["insecure_mcp_noauth"] or "false")
    if http and not values["mcp_token"] and not no_auth:
        raise BadSetting(
            "Clients over HTTP must send a token. Set --mcp-token (MCP_TOKEN), or accept every client of this machine "
            "with --insecure-mcp-noauth. Nothing was started."
        )
    settings = {
        "server_transport": "http" if http else "stdio",
        "server_host": values["host"],
        "server_port": values["port"] or _PORT,
        "server_toolsets": "jupyter",
        "kernel_cell_timeout_seconds": values["execution_timeout"] or _CELL_TIMEOUT,
        "kernel_max_timeout_seconds": values["max_execution_timeout"],
        "jupyter_document": values["document_id"],
        **_servers(values),
    }
    return Start(
        settings={name: value for name, value in settings.items() if value},
        token=values["mcp_token"] if http else "",
        kernel=values["runtime_id"],
        starts_kernel=_boolean("start-new-runtime", values["start_new_runtime"] or "true"),
    )


def _servers(values: Mapping[str, str]) -> dict[str, str]:
    runtime = values["runtime_url"] or values["jupyter_url"]
    documents = values["document_url"] or values["jupyter_url"] or runtime or _JUPYTER
    document_token = values["document_token"] or values["jupyter_token"]
    runtime_token = values["runtime_token"] or values["jupyter_token"]
    if not runtime or runtime.rstrip("/") == documents.rstrip("/"):
        return {"jupyter_url": documents, "jupyter_token": document_token or runtime_token}
    return {
        "jupyter_url": documents,
        "jupyter_token": document_token,
        "jupyter_kernel_url": runtime,
        "jupyter_kernel_token": runtime_token,
    }


def _value(names: tuple[str, ...], given: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    flag = given.get(_key(names))
    if flag is not None:
        return str(flag)
    variables = [_VARIABLES.get(name, name.replace("-", "_").upper()) for name in names]
    return next((environ[each] for each in variables if environ.get(each)), "")


def _is_http(transport: str) -> bool:
    if transport not in ("", "stdio", "streamable-http"):
        raise BadSetting(f"transport is stdio or streamable-http, not {transport!r}. Nothing was started.")
    return transport == "streamable-http"


def _boolean(name: str, value: str) -> bool:
    if value.lower() not in (*_YES, *_NO):
        raise BadSetting(f"{name} is true or false, not {value!r}. Nothing was started.")
    return value.lower() in _YES
