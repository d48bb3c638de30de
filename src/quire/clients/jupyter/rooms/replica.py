"""A replica of a room's document, kept in step over one line, which is made again when it is cut."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from pycrdt import Doc, create_update_message

from quire.clients.jupyter.documents.contents import not_there
from quire.clients.jupyter.documents.versions import Versions
from quire.clients.jupyter.ports import JupyterError, Missing, Unreachable
from quire.clients.jupyter.rooms import protocol as lines
from quire.clients.jupyter.rooms.presence import EVERY, Presence
from quire.clients.jupyter.rooms.protocol import NOTHING, Dial, Line
from quire.clients.jupyter.rooms.reconciliation import Own, carry_over, same_history
from quire.clients.jupyter.rooms.shared_notebook import SharedNotebook
from quire.clients.jupyter.server.websocket import Cut

LONGEST_PAUSE = 5.0  # seconds between two attempts to reach the room again
TRIES = 3  # of a save
WRITTEN = 1.5  # seconds from a save's acknowledgement until its file counts as not written; autosave comes after one

T = TypeVar("T")
log = logging.getLogger(__name__)


class Replica:
    """`shared` is the notebook here. Edits go out in the order they are made; those that were under way when the line
    was cut are sent again with the next one, or, if the room was made anew meanwhile, carried over."""

    def __init__(self, path: str, dial: Dial, *, where: str, agent: str, timeout: float) -> None:
        self._path = path
        self._where = where
        self.own = Own()
        self.watchers: list[Callable[[], None]] = []
        self._dial = dial
        self._agent = agent
        self._timeout = timeout
        self.shared = SharedNotebook(Doc(), Versions(), self._heard)
        self._presence = Presence(self.shared.doc, agent)
        self._line: Line | None = None
        self._run = ""
        self._joined = asyncio.Event()
        self._gone: JupyterError | None = None  # why there will be no further line
        self._tasks: list[asyncio.Task[None]] = []
        self._asked: dict[int, asyncio.Future[str]] = {}  # saves under way
        self._steps: list[asyncio.Future[None]] = []  # answers awaited to what we asked, in order
        self._saved = asyncio.Event()
        self._number = 0
        self._edits = 0

    @property
    def path(self) -> str:
        """Where the file is: a person may rename it while it is open."""
        self._path = self.shared.moved_to or self._path  # kept over the next line
        return self._path

    @property
    def lost(self) -> bool:
        """Whether it will never be in step again."""
        return self._gone is not None

    async def start(self) -> None:
        """Raises Missing or Unreachable."""
        line = await self._dial(self.path)
        try:
            await self._meet(line, first=True)
        except BaseException:
            await line.close()
            raise
        self._tasks = [asyncio.create_task(self._keep(line)), asyncio.create_task(self._be_present())]

    async def edit(self, change: Callable[[SharedNotebook], T]) -> T:
        """Make a change in one transaction and hand it over. Where `change` raises, nothing was changed."""
        line = await self._connected()
        self._edits += 1
        with self.shared.edit() as updates:
            result = change(self.shared)
        try:
            async with asyncio.timeout(self._timeout):
                for update in updates:
                    await line.send(create_update_message(update))
        except Cut:
            await self._connected(line)  # which has sent it, or carried it over
        except TimeoutError:
            raise Unreachable(f"The room of {self.path!r} takes no more; the change may not have arrived.") from None
        return result

    async def show_cursor(self, cell: str) -> None:
        """Show people in which cell the agent works."""
        line, source = self._line, self.shared.source(cell)
        if line is not None and source is not None:
            self._presence.move_cursor(source)
            with contextlib.suppress(Cut, TimeoutError):
                async with asyncio.timeout(self._timeout):
                    await line.send(self._presence.message())

    async def save(self) -> None:
        for _ in range(TRIES):
            line = await self._connected()
            with contextlib.suppress(Cut):
                before, edits = self.shared.saves, self._edits
                await self._flush(line)
                status = await self._ask_for_save(line)
                if status == "success" and await self._written(before):
                    if self._edits == edits:
                        self.own = Own()
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
        line, self._line = self._line, None
        self._lose(JupyterError(f"{self.path!r} was closed."))
        self._gone = self._gone or JupyterError(f"{self.path!r} was closed.")
        if line is not None:
            with contextlib.suppress(Cut, TimeoutError):
                async with asyncio.timeout(1.0):
                    await line.send(self._presence.farewell())
            await line.close()
        self.shared.let_go()

    # --- the line

    async def _connected(self, other_than: Line | None = None) -> Line:
        try:
            async with asyncio.timeout(self._timeout):
                while self._line is None or self._line is other_than:
                    if self._gone is not None:
                        raise self._gone
                    self._joined.clear()
                    await self._joined.wait()
                return self._line
        except TimeoutError:
            raise Unreachable(
                f"The connection to the document {self.path!r} is broken and could not be made again within "
                f"{self._timeout:g} s. Check that {self._where} runs, and call again."
            ) from None

    async def _keep(self, line: Line) -> None:
        """Listen; when the line is cut, make another, for as long as this replica is open."""
        while True:
            try:
                await self._listen(line)
            except Cut as cut:
                log.info("the line to %s was cut: %s", self.path, cut)
            except ValueError as error:
                log.warning("the server sent what is no Y message for %s: %s", self.path, error)
            self._line = None
            self._lose(Cut())
            await line.close()
            try:
                line = await self._meet_again()
            except Missing as error:
                self._gone = error
                self._joined.set()
                return

    async def _meet_again(self) -> Line:
        pause = 0.05
        while True:
            with contextlib.suppress(Unreachable, Cut, ValueError):
                line = await self._dial(self.path)
                try:
                    await self._meet(line)
                    return line
                except BaseException:
                    await line.close()
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _meet(self, line: Line, *, first: bool = False) -> None:
        """Get their document whole, and see how ours fits to it."""
        try:
            async with asyncio.timeout(self._timeout):
                theirs, state = await self._fetch(line)
                reply = self._adopt(theirs) if first else self._rejoin(theirs, state, again=line.run != self._run)
                await line.send(lines.answer(reply))
                await line.send(self._presence.message())
        except TimeoutError:
            raise Unreachable(f"The room of {self.path!r} did not answer within {self._timeout:g} s.") from None
        except Cut as cut:
            raise refused(self.path, cut) from None
        except ValueError as error:
            raise Unreachable(f"The room of {self.path!r} says what makes no sense ({error}).") from None
        self._line, self._run = line, line.run
        self._joined.set()

    async def _fetch(self, line: Line) -> tuple[Doc[Any], bytes]:
        await line.send(lines.question(NOTHING))
        doc: Doc[Any] = Doc()
        state, whole = b"", False
        while not (state and whole):
            match lines.read(await line.receive()):
                case lines.Asked(state=state):
                    pass
                case lines.Told(update=update, answer=answer):
                    apply(doc, update)
                    whole = whole or answer
                case _:
                    pass
        return doc, state

    def _adopt(self, theirs: Doc[Any]) -> bytes:
        """Theirs is ours from now on."""
        self._path = self.path
        self.shared.let_go()
        self.shared = SharedNotebook(theirs, self.shared.versions, self._heard)
        self._presence = Presence(theirs, self._agent)
        return theirs.get_update(theirs.get_state())

    def _rejoin(self, theirs: Doc[Any], state: bytes, *, again: bool) -> bytes:
        """A server that was started again puts what is in the file in place of what it knew last."""
        before = self.shared.cells()
        same = same_history(self.shared.doc, theirs)
        if same:
            apply(self.shared.doc, theirs.get_update())
        else:
            self._adopt(theirs)
        if again or not same:
            with self.shared.edit():
                carry_over(self.own, before, self.shared)
            self._heard()
        return self.shared.doc.get_update(state)

    async def _listen(self, line: Line) -> None:
        while True:
            match lines.read(await line.receive()):
                case lines.Told(update=update, answer=answer):
                    saves = self.shared.saves
                    apply(self.shared.doc, update)
                    if self.shared.saves != saves:
                        self._saved.set()
                    if answer and self._steps:
                        settle(self._steps.pop(0), None)
                case lines.Asked(state=state):
                    await line.send(lines.answer(self.shared.doc.get_update(state)))
                case lines.Aware(update=update):
                    if self._presence.hear(update):
                        await line.send(self._presence.message())
                case lines.Noted(body={"type": "save", "responseTo": int(number), "status": str(status)}):
                    settle(self._asked.pop(number, None), status)
                case lines.Noted(body={"type": "conflict"}):
                    raise Cut(why="the room was made anew")
                case _:
                    pass

    async def _be_present(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            line = self._line
            if line is not None:
                with contextlib.suppress(Cut):
                    await line.send(self._presence.message())

    def _heard(self) -> None:
        for each in list(self.watchers):
            each()

    def _lose(self, error: Exception) -> None:
        """Nothing that is awaited on this line will come."""
        waiting: list[asyncio.Future[Any]] = [*self._asked.values(), *self._steps]
        self._asked, self._steps = {}, []
        for each in waiting:
            if not each.done():
                each.set_exception(error)

    # --- saving

    async def _flush(self, line: Line) -> None:
        """Ask for nothing: with the answer all that was sent before is known to be in the room's document."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._steps.append(answer)
        await self._within(line.send(lines.question(self.shared.doc.get_state())))
        await self._within(answer)

    async def _ask_for_save(self, line: Line) -> str:
        self._number += 1
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked[self._number] = answer
        await self._within(line.send(lines.save_message(self._number)))
        return str(await self._within(answer))

    async def _within(self, waited: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                return await waited
        except TimeoutError:
            raise Unreachable(
                f"The Jupyter server did not say within {self._timeout:g} s that {self.path!r} is saved; it may be."
            ) from None

    async def _written(self, before: int) -> bool:
        """That it wrote comes as a change of the document, too; a failure is acknowledged as if it had not failed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._timeout, WRITTEN)):
                while self.shared.saves == before:
                    self._saved.clear()
                    await self._saved.wait()
        return self.shared.saves != before


def apply(doc: Doc[Any], update: bytes) -> None:
    """Raises ValueError for what is no update."""
    if update in (b"", b"\x00\x00"):
        return
    try:
        doc.apply_update(update)
    except BaseException as error:  # yrs panics at some bytes, which is no Exception
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
            raise
        raise ValueError(f"no Y update: {error}") from None


def refused(path: str, cut: Cut) -> JupyterError:
    """What a room that hangs up at once means."""
    if cut.code == 4404:
        return Missing(not_there(path, "the Jupyter server"))
    if cut.code in (4400, 4500, 1003):
        return JupyterError(f"The Jupyter server cannot share {path!r}: {cut.why or cut.code}. Is it a valid notebook?")
    return Unreachable(f"The connection to the document {path!r} was cut ({cut}). Try again.")


def settle(future: asyncio.Future[Any] | None, value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)
