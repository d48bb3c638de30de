"""Connections to MCP servers. Each has a task of its own, so any task may open, call or close it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import anyio

from quire.capabilities import configs, failure_messages, parsing
from quire.capabilities.process import Process
from quire.capabilities.secrets import Secrets
from quire.core.capabilities.model import Backend, Offered, Result, address
from quire.core.errors import CallTimeout, ConnectionLost, InvalidRequest, NotFound, OperationFailed, QuireError
from quire.core.limits.caller_policy import is_allowed_host
from quire.core.ports.capabilities import Listener

if TYPE_CHECKING:  # the client libraries are imported with the first backend, since that is slow
    from mcp.shared.dispatcher import Dispatcher

    from quire.capabilities.arguments import ArgumentChecks
    from quire.capabilities.sessions import Session

_ARGUMENTS_MODULE = "quire.capabilities.arguments"
_CLOSE_SECONDS = 3.0  # for ending a session over HTTP
_EXIT_SECONDS = 1.0  # for a process to exit, and again after SIGTERM
_UNANSWERED_EXIT_SECONDS = 0.3  # the same, if it never answered
_LIST_SECONDS = 600.0  # the timeout of connecting is shorter
_MAX_LOG_CHARS = 10_000  # of one log message
_INHERITED = (
    "HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
    "APPDATA", "COMSPEC", "LOCALAPPDATA", "PATHEXT", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERPROFILE",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ResolvedBackend:
    """A backend with resolved secrets. Never shown and never stored."""

    what: str  # for messages
    command: tuple[str, ...]
    env: dict[str, str]
    folder: str
    url: str
    headers: dict[str, str]
    public_only: bool = False  # refuse addresses of private networks


class McpBackends:
    """MCP servers by command, by url, or as another client's configuration file has them.

    References to secrets are looked up in `environ`, of which commands inherit a few variables. `hosts` are allowed
    for confined backends even in private networks.
    """

    def __init__(self, *, environ: Mapping[str, str], hosts: tuple[str, ...] = ()) -> None:
        self._environ = environ
        self._hosts = hosts

    def described(self, config: str | dict[str, Any], name: str) -> Backend:
        if isinstance(config, str):
            return configs.find_server(config, name)
        backend = configs.parse_entry(config)
        if not backend.command and not backend.url:
            raise InvalidRequest("The entry has neither a command nor a url, as an entry of mcpServers does.")
        return backend

    def servers(self, config: str) -> list[str]:
        return configs.server_names(config)

    def variables(self, backend: Backend) -> set[str]:
        secrets = Secrets(self._environ)
        with contextlib.suppress(QuireError):  # reported when it is connected
            self._resolve(backend, secrets)
        return secrets.variables.difference(_INHERITED)

    async def connect(self, backend: Backend, listener: Listener, *, timeout: float) -> McpConnection:
        secrets = Secrets(self._environ)
        try:
            connection = McpConnection(self._resolve(backend, secrets), listener, secrets)
            await connection.open(timeout)
        except (OperationFailed, InvalidRequest, NotFound) as error:
            raise OperationFailed(secrets.redact(str(error))) from None  # the cause may contain secrets
        return connection

    def _resolve(self, backend: Backend, secrets: Secrets) -> ResolvedBackend:
        if backend.confined:  # no program, file or variable of this machine
            secrets.hide_all(backend.headers)
            secrets.hide_in((), backend.url)
            return ResolvedBackend(
                what=address(backend.url),
                command=(),
                env={},
                folder="",
                url=backend.url,
                headers=backend.headers,
                public_only=not is_allowed_host(backend.url, self._hosts),
            )
        found = configs.resolve_entry(backend, secrets.expand) if backend.config else backend
        env, headers = secrets.resolve_all(found.env), secrets.resolve_all(found.headers)
        secrets.hide_in(found.command, found.url)
        if bool(found.command) == bool(found.url):
            raise OperationFailed("A backend has either a command or a url. Pass one of them.")
        inherited = {name: self._environ[name] for name in _INHERITED if name in self._environ}
        return ResolvedBackend(
            what=address(found.url) if found.url else found.command[0],
            command=found.command,
            env={**inherited, **env},
            folder=found.folder,
            url=found.url,
            headers=headers,
        )


class McpConnection:
    """One backend. A task owns its session and process and ends with either, or when it is closed."""

    def __init__(self, backend: ResolvedBackend, listener: Listener, secrets: Secrets) -> None:
        self._backend = backend
        self._listener = listener
        self._secrets = secrets
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._stop = asyncio.Event()
        self._session: Session | None = None
        self._offered = Offered()
        self._checks: ArgumentChecks | None = None
        self._end_reason = ""  # a sentence; "" while connected
        self._public_reason = "Its server cannot be reached."  # the same for code in cells, without paths
        self._closed = False
        self._process: Process | None = None
        self._timeout = 0.0  # seconds to connect
        self._printed: Callable[[], tuple[str, str]] = lambda: ("", "")
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def offered(self) -> Offered:
        return self._offered

    @property
    def protocol(self) -> str:
        """The negotiated version of MCP."""
        return self._session.protocol if self._session is not None else ""

    async def open(self, timeout: float) -> None:
        """Connect, once. Raises OperationFailed and leaves nothing running."""
        self._timeout = timeout
        self._task = self._loop.create_task(self._run())
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._ready)
            if self._end_reason:  # lost before the caller could listen
                raise OperationFailed(self._end_reason)
        except TimeoutError:
            printed = self._printed()
            await self._close_shielded()
            slow = failure_messages.timed_out(self._backend.what, timeout) if self._backend.url else ""
            raise OperationFailed(slow or failure_messages.no_answer(self._backend.what, timeout, *printed)) from None
        except BaseException:
            await self._close_shielded()
            raise

    async def _close_shielded(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.close()

    def check(self, tool: str, arguments: dict[str, Any]) -> None:
        if self._checks is not None:
            self._checks.check(tool, arguments)

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        timeout: float,
        progress: Callable[[float, float | None, str], None],
    ) -> Result:
        async def report(done: float, total: float | None, message: str | None) -> None:
            progress(done, total, self._secrets.redact(message or ""))

        params = {"name": tool, "arguments": arguments}
        return parsing.parse_result(await self._request("tools/call", params, timeout=timeout, progress=report))

    async def resources(self, *, timeout: float) -> dict[str, Any]:
        if not self._offered.resources:
            return {"resources": [], "templates": []}
        resources = await self._list("resources/list", "resources", timeout=timeout)
        try:
            templates = await self._list("resources/templates/list", "resourceTemplates", timeout=timeout)
        except (ConnectionLost, CallTimeout):
            raise
        except OperationFailed:
            templates = []  # many servers with resources do not support templates
        return {"resources": resources, "templates": templates}

    async def read(self, uri: str, *, timeout: float) -> dict[str, Any]:
        answer = await self._request("resources/read", {"uri": uri}, timeout=timeout)
        return {"contents": parsing.parse_blocks(answer, "contents")}

    async def prompts(self, *, timeout: float) -> dict[str, Any]:
        if not self._offered.prompts:
            return {"prompts": []}
        return {"prompts": await self._list("prompts/list", "prompts", timeout=timeout)}

    async def prompt(self, name: str, arguments: dict[str, str], *, timeout: float) -> dict[str, Any]:
        answer = await self._request("prompts/get", {"name": name, "arguments": arguments}, timeout=timeout)
        about = answer.get("description")
        description = about if isinstance(about, str) else ""
        return {"description": description, "messages": parsing.parse_blocks(answer, "messages")}

    async def _list(self, method: str, key: str, *, timeout: float) -> list[Any]:
        with self._translated_errors():
            listed = await self._active_session().list_all(method, key, timeout=timeout)
            return [item for item in listed if isinstance(item, dict)]

    async def _request(self, method: str, params: dict[str, Any], *, timeout: float, progress: Any = None) -> Any:
        with self._translated_errors():
            return await self._active_session().request(method, params, timeout=timeout, progress=progress)

    def _active_session(self) -> Session:
        if self._session is None or self._end_reason or self._closed:
            why = self._end_reason or f"The connection to {self._backend.what} is closed."
            raise ConnectionLost(self._public_reason, why=why)
        return self._session

    @contextlib.contextmanager
    def _translated_errors(self) -> Any:
        try:
            yield
        except ConnectionLost as error:
            why = self._secrets.redact(self._end_reason or error.why or str(error))
            raise ConnectionLost(self._public_reason, why=why) from None
        except (CallTimeout, OperationFailed) as error:
            raise type(error)(self._secrets.redact(str(error))) from None
        except RecursionError:
            raise OperationFailed("The answer is nested too deeply to be taken. The server is at fault.") from None

    async def close(self) -> None:
        if self._closing is None:
            self._closed = True
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._stop.set()
        if self._task is not None:
            if not self._ready.done() or self._ready.exception() is not None:
                self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
            if self._process is not None:
                await self._process.close()
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)

    # Runs in its own task

    async def _run(self) -> None:
        failure = "The connection was closed."
        try:
            failure = await (self._by_url() if self._backend.url else self._by_command())
        except asyncio.CancelledError:
            self._closed = True  # the server is shutting down
            raise
        except OperationFailed as error:
            failure = str(error)
        except Exception as error:  # errors of the libraries are nested exception groups
            failure = f"{self._backend.what} cannot be spoken with: {failure_messages.as_sentence(_innermost(error))}"
        finally:
            self._end(failure)

    def _end(self, why: str) -> None:
        """Mark it as ended. The first reason counts."""
        if self._end_reason:
            return
        self._end_reason = self._secrets.redact(why)
        self._stop.set()
        if not self._ready.done():
            self._ready.set_exception(OperationFailed(self._end_reason))
            self._ready.exception()  # marks the exception as retrieved
        elif not self._closed:
            self._listener.lost(self._end_reason)

    async def _by_url(self) -> str:
        from quire.capabilities import sessions, web

        trouble, backend = web.HttpFailure(), self._backend
        connecting = web.dispatcher(backend.url, backend.headers, trouble, public_only=backend.public_only)
        async with connecting as dispatcher:
            error = await self._serve(dispatcher, sessions.NEGOTIATIONS[0])
            if error is not None:
                return web.failure(self._backend.what, error, trouble)
        return "The connection was closed."

    async def _by_command(self) -> str:
        from quire.capabilities import sessions

        failure = ""
        for negotiation in sessions.NEGOTIATIONS:
            failure, again = await self._with_process(negotiation)
            if not again:
                break
        return failure

    async def _with_process(self, negotiation: Any) -> tuple[str, bool]:
        """Why it ended, and whether that was during negotiation, so that another one may succeed."""
        from quire.capabilities.pipe_dispatcher import PipeDispatcher

        def on_end() -> None:
            pipe.end(ConnectionLost(f"{backend.what} {process.status}."))
            if self._ready.done():
                self._public_reason = f"Its server {process.status}."
                self._end(f"{backend.what} {process.status}.{failure_messages.printed_output(*printed())}")

        def printed() -> tuple[str, str]:
            return self._secrets.redact(process.errors), self._secrets.redact(pipe.junk)  # before truncation

        backend = self._backend
        pipe = PipeDispatcher(probe=self._timeout / 3)
        process: Process = await Process.start(
            backend.command, env=backend.env, folder=backend.folder, on_line=pipe.receive_line, on_end=on_end
        )
        pipe.start_writing(process.write, lambda: process.room() if process.is_full else None)
        self._process = process
        self._printed = printed
        try:
            error = await self._serve(pipe, negotiation)
        finally:
            pipe.end(ConnectionLost(f"The connection to {backend.what} was closed."))
            await process.close(_EXIT_SECONDS if self._ready.done() else _UNANSWERED_EXIT_SECONDS)
        if isinstance(error, ConnectionLost):
            return failure_messages.exited(backend.what, process.status, *self._printed()), not self._ready.done()
        if error is not None:
            return failure_messages.not_mcp(backend.what, str(error), *self._printed()), False
        return "The connection was closed.", False

    async def _serve(self, dispatcher: Dispatcher[Any], negotiation: Any) -> BaseException | None:
        """Serve until the connection is stopped; the error that ended it, if any."""
        from quire.capabilities.sessions import Session

        tasks: set[asyncio.Task[Any]] = set()
        async with Session.open(dispatcher, self._logged, self._secrets.redact_data) as session:
            try:
                await session.negotiate(negotiation)
                await asyncio.to_thread(import_module, _ARGUMENTS_MODULE)  # may take a second with Jupyter installed
                self._set_offered(await session.offered(timeout=_LIST_SECONDS))
                self._session = session
                self._ready.set_result(None)
                following = self._loop.create_task(session.follow(self._offered, self._changed))
                tasks = {following, self._loop.create_task(self._stop.wait())}
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                return following.exception() if following.done() else None
            except Exception as error:  # before the libraries wrap it in groups
                return error
            finally:
                for task in tasks:
                    task.cancel()
        return None

    def _set_offered(self, offered: Offered) -> None:
        from quire.capabilities.arguments import ArgumentChecks

        self._offered, self._checks = offered, ArgumentChecks(offered)

    def _changed(self, offered: Offered) -> None:
        self._set_offered(offered)
        self._listener.changed(offered)

    def _logged(self, level: str, text: str) -> None:
        if not self._end_reason and not self._closed:
            self._listener.logged(level, self._secrets.redact(text)[:_MAX_LOG_CHARS])


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
