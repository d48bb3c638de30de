"""Tornado handler that passes authorized requests of a Jupyter server to the app."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import ensure_async
from starlette.types import Scope
from tornado.httputil import HTTPHeaders
from tornado.web import HTTPError, stream_request_body

from quire.core.errors import InvalidRequest, OperationFailed
from quire.core.notebooks.access import Caller
from quire.frontends.jupyter_extension import identity
from quire.frontends.jupyter_extension.asgi_bridge import AsgiExchange
from quire.frontends.jupyter_extension.background_app import BackgroundApp

PATTERN = r"/mcp(|/healthz|/tools/list|/tools/call)/?"
_METHODS = ("GET", "POST", "DELETE")
_SECRET_HEADERS = ("authorization", "cookie")  # credentials for the Jupyter server, not for the app
_NEEDED_RIGHTS = (("execute", "kernels"), ("write", "contents"))  # tools do both


@stream_request_body
class McpHandler(APIHandler):
    """Handles paths below `/mcp`. The Jupyter server checks token, cookie with XSRF, Host and Origin."""

    def initialize(self, background_app: BackgroundApp) -> None:
        self._background_app = background_app
        self._exchange: AsgiExchange | None = None  # None: the body is dropped
        self._refusal: HTTPError | None = None
        self._answer_task: asyncio.Task[None] | None = None

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        try:
            await super().prepare()
            if self.request.method in _METHODS:
                await self._check_rights()
                await self._prepare_exchange()
        except HTTPError as error:
            self._refusal = error  # sent after the body: tornado would close the connection before the client reads it

    async def _prepare_exchange(self) -> None:
        try:
            mounted = await self._background_app.wait_ready()
            scope = self._scope()  # afterwards: the modules that it imports are loaded by then
        except InvalidRequest as error:
            raise HTTPError(403, str(error)) from None
        except OperationFailed as error:
            raise HTTPError(503, str(error)) from None
        self._exchange = AsgiExchange(self, mounted.timeout)
        self._run = partial(self._exchange.run, mounted.app, scope)
        if _has_body(self.request.headers):
            self._start_answer()

    def _start_answer(self) -> asyncio.Task[None]:
        """Start only once. Without a body, wait until tornado has read the request: it disconnects clients answered
        earlier."""
        if self._answer_task is None:
            self._answer_task = asyncio.create_task(self._run())
            self._background_app.add_request(self._answer_task)
        return self._answer_task

    async def _check_rights(self) -> None:
        self._check_authenticated()  # the server does not check it by itself
        for action, resource in _NEEDED_RIGHTS:
            is_allowed = self.authorizer.is_authorized(self, self.current_user, action, resource)
            if not await ensure_async(is_allowed):
                raise HTTPError(403, f"{self.current_user.username} may not {action} {resource} here.")

    def check_xsrf_cookie(self) -> None:
        """Report a missing token first, not a missing XSRF token."""
        if hasattr(self, "_jupyter_current_user"):
            self._check_authenticated()
        super().check_xsrf_cookie()

    def _check_authenticated(self) -> None:
        if not self.current_user:
            raise HTTPError(403, "Bring the Jupyter server's token, as in the header Authorization: token …")

    async def data_received(self, chunk: bytes) -> None:
        if self._exchange is not None:
            await self._exchange.put_body(chunk)

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self.on_finish()

    def on_finish(self) -> None:
        if self._exchange is not None:
            self._exchange.client_left()

    def compute_etag(self) -> None:
        """No ETag: responses are not cached."""

    async def get(self, path: str) -> None:
        if self._refusal is not None or self._exchange is None:
            raise self._refusal or HTTPError(500)
        await self._exchange.put_body(None)
        await self._start_answer()

    post = delete = get

    def _scope(self) -> Scope:
        request = self.request
        headers = request.headers.get_all()
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": request.version.removeprefix("HTTP/"),
            "method": request.method,
            "scheme": request.protocol,
            "path": f"/mcp{self.path_args[0]}",
            "raw_path": f"/mcp{self.path_args[0]}".encode(),
            "query_string": b"",  # it may contain a token, and nothing else
            "root_path": "",
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in headers
                if name.lower() not in _SECRET_HEADERS
            ],
            "client": (request.remote_ip, 0),
            "server": None,
        }
        caller = identity.find_caller(self.identity_provider, self.current_user)
        if caller is not None:
            scope["user"] = _user(caller)
        return scope


def _has_body(headers: HTTPHeaders) -> bool:
    return "Transfer-Encoding" in headers or headers.get("Content-Length", "0") != "0"


def _user(caller: Caller) -> Any:
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser  # loaded by the app

    from quire.frontends.mcp.callers import VerifiedToken

    name = str(caller.principal)
    scopes = [str(scope) for scope in caller.scopes]
    return AuthenticatedUser(VerifiedToken(token="", client_id=name, scopes=scopes, subject=name, caller=caller))
