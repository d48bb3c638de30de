"""A replica of a shared document, synchronized with its room over a connection that reconnects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from pycrdt import Doc, create_update_message

from quire.clients.jupyter.documents.contents import not_found_message
from quire.clients.jupyter.documents.versions import SourceVersions
from quire.clients.jupyter.ports import JupyterError, Missing, Unreachable
from quire.clients.jupyter.rooms import protocol
from quire.clients.jupyter.rooms.presence import PRESENCE_INTERVAL_S, Presence
from quire.clients.jupyter.rooms.protocol import EMPTY_STATE, ConnectToRoom, RoomConnection
from quire.clients.jupyter.rooms.reconciliation import OwnChanges, has_common_history, reapply
from quire.clients.jupyter.rooms.shared_notebook import SharedNotebook
from quire.clients.jupyter.server.websocket import ConnectionLost

MAX_RETRY_DELAY_S = 5.0  # between attempts to reconnect
MAX_SAVE_ATTEMPTS = 3
WRITTEN_TIMEOUT_S = 1.5  # for the change that confirms an acknowledged save; autosave runs one second after a change

T = TypeVar("T")
log = logging.getLogger(__name__)


class Replica:
    """`shared` is the local notebook. Edits are sent in order. Edits that were not delivered when the connection broke
    are sent after the reconnect, or reapplied if the server rebuilt the room."""

    def __init__(
        self, path: str, connect_to_room: ConnectToRoom, *, server_name: str, agent: str, timeout: float
    ) -> None:
        self._path = path
        self._server_name = server_name
        self.own_changes = OwnChanges()
        self.watchers: list[Callable[[], None]] = []
        self._connect_to_room = connect_to_room
        self._agent = agent
        self._timeout = timeout
        self.shared = SharedNotebook(Doc(), SourceVersions(), self._notify_watchers)
        self._presence = Presence(self.shared.doc, agent)
        self._connection: RoomConnection | None = None
        self._server_run = ""
        self._reconnected = asyncio.Event()
        self._closed_error: JupyterError | None = None  # why it will not reconnect
        self._tasks: list[asyncio.Task[None]] = []
        self._pending_saves: dict[int, asyncio.Future[str]] = {}  # by save number
        self._pending_syncs: list[asyncio.Future[None]] = []  # sync requests without an answer, in order
        self._save_seen = asyncio.Event()
        self._last_save = 0
        self._edit_count = 0

    @property
    def path(self) -> str:
        """The current path: a person may rename the file while it is open."""
        self._path = self.shared.new_path or self._path  # kept for the next connection
        return self._path

    @property
    def is_lost(self) -> bool:
        """Whether it will never be synchronized again."""
        return self._closed_error is not None

    async def start(self) -> None:
        """Raises Missing or Unreachable."""
        connection = await self._connect_to_room(self.path)
        try:
            await self._join(connection, is_first=True)
        except BaseException:
            await connection.close()
            raise
        self._tasks = [
            asyncio.create_task(self._stay_connected(connection)),
            asyncio.create_task(self._announce_presence()),
        ]

    async def edit(self, change: Callable[[SharedNotebook], T]) -> T:
        """Make a change in one transaction and send it. If `change` raises, nothing was changed."""
        connection = await self._wait_connected()
        self._edit_count += 1
        with self.shared.edit() as updates:
            result = change(self.shared)
        try:
            async with asyncio.timeout(self._timeout):
                for update in updates:
                    await connection.send(create_update_message(update))
        except ConnectionLost:
            await self._wait_connected(connection)  # the reconnect has sent or reapplied it
        except TimeoutError:
            raise Unreachable(
                f"The room of {self.path!r} does not accept more data; the change may not have arrived."
            ) from None
        return result

    async def show_cursor(self, cell: str) -> None:
        """Show people in which cell the agent works."""
        connection, source = self._connection, self.shared.source(cell)
        if connection is not None and source is not None:
            self._presence.move_cursor(source)
            with contextlib.suppress(ConnectionLost, TimeoutError):
                async with asyncio.timeout(self._timeout):
                    await connection.send(self._presence.message())

    async def save(self) -> None:
        for _ in range(MAX_SAVE_ATTEMPTS):
            connection = await self._wait_connected()
            with contextlib.suppress(ConnectionLost):
                saves_before, edit_count = self.shared.save_count, self._edit_count
                await self._sync(connection)
                status = await self._request_save(connection)
                if status == "success" and await self._wait_written(saves_before):
                    if self._edit_count == edit_count:
                        self.own_changes = OwnChanges()
                    return
        raise JupyterError(
            f"The Jupyter server did not write {self.path!r} to its file; the changes are in the shared document. "
            "Look at the server's log: the disk may be full, or the file not writable."
        )

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connection, self._connection = self._connection, None
        self._fail_pending(JupyterError(f"{self.path!r} was closed."))
        self._closed_error = self._closed_error or JupyterError(f"{self.path!r} was closed.")
        if connection is not None:
            with contextlib.suppress(ConnectionLost, TimeoutError):
                async with asyncio.timeout(1.0):
                    await connection.send(self._presence.leave_message())
            await connection.close()
        self.shared.close()

    # --- connection

    async def _wait_connected(self, other_than: RoomConnection | None = None) -> RoomConnection:
        try:
            async with asyncio.timeout(self._timeout):
                while self._connection is None or self._connection is other_than:
                    if self._closed_error is not None:
                        raise self._closed_error
                    self._reconnected.clear()
                    await self._reconnected.wait()
                return self._connection
        except TimeoutError:
            raise Unreachable(
                f"The connection to the document {self.path!r} is broken and could not be made again within "
                f"{self._timeout:g} s. Check that {self._server_name} runs, and call again."
            ) from None

    async def _stay_connected(self, connection: RoomConnection) -> None:
        """Receive messages, and reconnect as long as the replica is open."""
        while True:
            try:
                await self._receive(connection)
            except ConnectionLost as lost:
                log.info("the connection to the room of %s was lost: %s", self.path, lost)
            except ValueError as error:
                log.warning("the server sent an invalid Y message for %s: %s", self.path, error)
            self._connection = None
            self._fail_pending(ConnectionLost())
            await connection.close()
            try:
                connection = await self._reconnect()
            except Missing as error:
                self._closed_error = error
                self._reconnected.set()
                return

    async def _reconnect(self) -> RoomConnection:
        delay_s = 0.05
        while True:
            with contextlib.suppress(Unreachable, ConnectionLost, ValueError):
                connection = await self._connect_to_room(self.path)
                try:
                    await self._join(connection)
                    return connection
                except BaseException:
                    await connection.close()
                    raise
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, MAX_RETRY_DELAY_S)

    async def _join(self, connection: RoomConnection, *, is_first: bool = False) -> None:
        """Fetch the room's document and merge ours with it."""
        try:
            async with asyncio.timeout(self._timeout):
                remote, state = await self._fetch(connection)
                is_new_run = connection.server_run != self._server_run
                reply = (
                    self._replace_document(remote) if is_first else self._merge(remote, state, is_new_run=is_new_run)
                )
                await connection.send(protocol.sync_reply(reply))
                await connection.send(self._presence.message())
        except TimeoutError:
            raise Unreachable(f"The room of {self.path!r} did not answer within {self._timeout:g} s.") from None
        except ConnectionLost as lost:
            raise room_error(self.path, lost) from None
        except ValueError as error:
            raise Unreachable(f"The room of {self.path!r} sent an invalid message ({error}).") from None
        self._connection, self._server_run = connection, connection.server_run
        self._reconnected.set()

    async def _fetch(self, connection: RoomConnection) -> tuple[Doc[Any], bytes]:
        await connection.send(protocol.sync_request(EMPTY_STATE))
        doc: Doc[Any] = Doc()
        state, is_complete = b"", False
        while not (state and is_complete):
            match protocol.parse(await connection.receive()):
                case protocol.SyncRequest(state=state):
                    pass
                case protocol.Update(update=update, is_reply=is_reply):
                    apply_update(doc, update)
                    is_complete = is_complete or is_reply
                case _:
                    pass
        return doc, state

    def _replace_document(self, remote: Doc[Any]) -> bytes:
        """Use the room's document in place of ours."""
        self._path = self.path
        self.shared.close()
        self.shared = SharedNotebook(remote, self.shared.versions, self._notify_watchers)
        self._presence = Presence(remote, self._agent)
        return remote.get_update(remote.get_state())

    def _merge(self, remote: Doc[Any], state: bytes, *, is_new_run: bool) -> bytes:
        """Merge our document with the room's. A server that restarted loads the file and has lost later changes."""
        previous_cells = self.shared.cells()
        has_history = has_common_history(self.shared.doc, remote)
        if has_history:
            apply_update(self.shared.doc, remote.get_update())
        else:
            self._replace_document(remote)
        if is_new_run or not has_history:
            with self.shared.edit():
                reapply(self.own_changes, previous_cells, self.shared)
            self._notify_watchers()
        return self.shared.doc.get_update(state)

    async def _receive(self, connection: RoomConnection) -> None:
        while True:
            match protocol.parse(await connection.receive()):
                case protocol.Update(update=update, is_reply=is_reply):
                    save_count = self.shared.save_count
                    apply_update(self.shared.doc, update)
                    if self.shared.save_count != save_count:
                        self._save_seen.set()
                    if is_reply and self._pending_syncs:
                        resolve(self._pending_syncs.pop(0), None)
                case protocol.SyncRequest(state=state):
                    await connection.send(protocol.sync_reply(self.shared.doc.get_update(state)))
                case protocol.AwarenessUpdate(update=update):
                    if self._presence.apply_remote(update):
                        await connection.send(self._presence.message())
                case protocol.ServerNotice(body={"type": "save", "responseTo": int(number), "status": str(status)}):
                    resolve(self._pending_saves.pop(number, None), status)
                case protocol.ServerNotice(body={"type": "conflict"}):
                    raise ConnectionLost(reason="the room was rebuilt")
                case _:
                    pass

    async def _announce_presence(self) -> None:
        while True:
            await asyncio.sleep(PRESENCE_INTERVAL_S)
            connection = self._connection
            if connection is not None:
                with contextlib.suppress(ConnectionLost):
                    await connection.send(self._presence.message())

    def _notify_watchers(self) -> None:
        for notify in list(self.watchers):
            notify()

    def _fail_pending(self, error: Exception) -> None:
        """Fail everything that waits for an answer on this connection."""
        pending: list[asyncio.Future[Any]] = [*self._pending_saves.values(), *self._pending_syncs]
        self._pending_saves, self._pending_syncs = {}, []
        for future in pending:
            if not future.done():
                future.set_exception(error)

    # --- saving

    async def _sync(self, connection: RoomConnection) -> None:
        """Wait until the room has applied all earlier updates: it answers requests in order."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending_syncs.append(answered)
        await self._with_timeout(connection.send(protocol.sync_request(self.shared.doc.get_state())))
        await self._with_timeout(answered)

    async def _request_save(self, connection: RoomConnection) -> str:
        self._last_save += 1
        status: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._pending_saves[self._last_save] = status
        await self._with_timeout(connection.send(protocol.save_request(self._last_save)))
        return str(await self._with_timeout(status))

    async def _with_timeout(self, awaitable: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                return await awaitable
        except TimeoutError:
            raise Unreachable(
                f"The Jupyter server did not say within {self._timeout:g} s that {self.path!r} is saved; it may be."
            ) from None

    async def _wait_written(self, saves_before: int) -> bool:
        """Wait for the change of the document that confirms a save: the server acknowledges failed saves too."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._timeout, WRITTEN_TIMEOUT_S)):
                while self.shared.save_count == saves_before:
                    self._save_seen.clear()
                    await self._save_seen.wait()
        return self.shared.save_count != saves_before


def apply_update(doc: Doc[Any], update: bytes) -> None:
    """Raises ValueError if the update is invalid."""
    if update in (b"", b"\x00\x00"):
        return
    try:
        doc.apply_update(update)
    except BaseException as error:  # yrs panics on some input, which is not an Exception
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
            raise
        raise ValueError(f"no Y update: {error}") from None


def room_error(path: str, lost: ConnectionLost) -> JupyterError:
    """The error for a room that closed the connection while we joined."""
    if lost.code == 4404:
        return Missing(not_found_message(path, "the Jupyter server"))
    if lost.code in (4400, 4500, 1003):
        return JupyterError(
            f"The Jupyter server cannot share {path!r}: {lost.reason or lost.code}. Is it a valid notebook?"
        )
    return Unreachable(f"The connection to the document {path!r} was cut ({lost}). Try again.")


def resolve(future: asyncio.Future[Any] | None, value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)
