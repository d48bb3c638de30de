"""Files that are kept as their notebooks are: written soon after each change, whole or not at all.

What a person wrote to such a file meanwhile is never lost: it is kept beside it under another name, and said.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from quire.core.errors import InvalidRequest, NotFound, OperationFailed, QuireError
from quire.core.model import Cell, CellState, Notebook, NotebookId
from quire.core.notebooks import workspaces
from quire.core.notebooks.documents import Documents
from quire.core.ops.change_bus import Change, Feed
from quire.core.ops.task_groups import background
from quire.core.ports.store import Store

log = logging.getLogger(__name__)
_QUIET_S = 0.3  # seconds without a change after which it is written
_MAX_DELAY_S = 2.0  # seconds after a change at which it is written though others follow, and while a cell runs
_MAX_TIME_SHARE = 0.05  # of the time that may go into one mirror: the larger the notebook, the rarer
_MAX_INTERVAL_S = 60.0  # seconds between two times at the most
_SHUTDOWN_TIMEOUT_S = 20.0  # seconds the server's end may take for it


@dataclass
class _Mirror:
    notebook: Notebook
    path: Path
    is_followed: bool = False  # it is looked after by a task
    changed: bool = False  # since it was last written
    first_change_at: float = 0.0  # when the first change that is not written was made
    last_change_at: float = 0.0  # and the last
    not_before: float = 0.0
    written_state: tuple[int, int, int] | None = None  # the file as it was when it was written here
    digest: str = ""  # of what was written here last
    problem: str = ""
    backup_notice: str = ""  # what is to be said of a person's version
    writing: anyio.Lock = field(default_factory=anyio.Lock)
    woken: anyio.Event = field(default_factory=anyio.Event)


class Mirrors:
    def __init__(
        self,
        documents: Documents,
        store: Store,
        feed: Feed,
        dumps: Callable[[Notebook, list[Cell]], str],
        add_notice: Callable[[Notebook, str], None] = lambda notebook, sentence: None,
    ) -> None:
        """`dumps` sees by the notebook's mirror which format is meant; `tell` says a sentence with the next answer."""
        self._documents = documents
        self._store = store
        self._feed = feed
        self._dumps = dumps
        self._add_notice = add_notice
        self._mirrors: dict[NotebookId, _Mirror] = {}
        self._group: TaskGroup | None = None

    @asynccontextmanager
    async def open(self, *, restore: bool = True) -> AsyncIterator[None]:
        """Mirrors are kept in here, with `restore` those whose file is gone are written anew; leaving it writes what
        is not written yet."""
        async with background() as self._group:
            for notebook in await self._store.list_mirrored():
                mirror = self._register(notebook)
                if mirror is not None and restore and not await anyio.Path(mirror.path).exists():
                    self._mark_changed(mirror)
            unsubscribe = self._feed.listen(self._on_change)
            try:
                yield
            finally:
                unsubscribe()
                with anyio.CancelScope(shield=True), anyio.move_on_after(_SHUTDOWN_TIMEOUT_S):
                    for mirror in [each for each in self._mirrors.values() if each.changed or each.is_followed]:
                        await self._write(mirror)

    async def set(self, notebook: Notebook, path: str | Path) -> Notebook:
        """Keep the file as the notebook is, from now on; "" ends that. What is at the path is overwritten, as an
        export does. Raises OperationFailed, and mirrors nothing new, where it cannot be written."""
        if not str(path):
            self._mirrors.pop(notebook.id, None)
            return await self._documents.update(notebook, lambda fresh: replace(fresh, mirror=""))
        real = await anyio.to_thread.run_sync(_resolve, path)
        await self._refuse_shared(notebook, real)
        mirror = self._mirrors.get(notebook.id)
        if mirror is None or mirror.path != real:
            mirror = _Mirror(notebook=notebook, path=real)
            await self._write_first(mirror)
        mirror.backup_notice = ""
        changed = await self._documents.update(notebook, lambda fresh: replace(fresh, mirror=str(real)))
        self._mirrors[notebook.id] = mirror
        if await self._write(mirror):  # a cell was changed meanwhile, or runs
            self._mark_changed(mirror)
        if mirror.problem:
            raise OperationFailed(mirror.problem)
        return changed

    async def _write_first(self, mirror: _Mirror) -> None:
        fresh, cells = await self._documents.contents(mirror.notebook)
        text = await self._text(replace(fresh, mirror=str(mirror.path)), cells)
        await anyio.to_thread.run_sync(workspaces.write_resolved, mirror.path, text.decode("utf-8"))
        mirror.digest, mirror.written_state = workspaces.digest(text), _file_state(mirror.path)

    def problem(self, notebook: Notebook) -> str:
        """Why the mirror is not as the notebook is, and what became of a person's version; "" where all is well."""
        mirror = self._mirrors.get(notebook.id)
        return " ".join(filter(None, (mirror.problem, mirror.backup_notice))) if mirror is not None else ""

    async def _refuse_shared(self, notebook: Notebook, path: Path) -> None:
        for other in await self._store.list_mirrored():
            if other.id != notebook.id and other.mirror == str(path):
                raise InvalidRequest(f"{path} is kept as notebook {other.name!r} is. Choose another path.")

    # By itself

    def _on_change(self, change: Change) -> None:
        mirror = self._mirrors.get(change.notebook.id) or self._register(change.notebook)
        if mirror is not None:
            self._mark_changed(mirror)

    def _register(self, notebook: Notebook) -> _Mirror | None:
        """Look after a mirror that was set by another server, or in an earlier life."""
        if not notebook.mirror or any(str(each.path) == notebook.mirror for each in self._mirrors.values()):
            return None
        return self._mirrors.setdefault(notebook.id, _Mirror(notebook=notebook, path=Path(notebook.mirror)))

    def _mark_changed(self, mirror: _Mirror) -> None:
        now = anyio.current_time()
        if not mirror.changed:
            mirror.first_change_at = now
        mirror.changed, mirror.last_change_at = True, now
        mirror.woken.set()
        if not mirror.is_followed and self._group is not None:
            mirror.is_followed = True
            self._group.start_soon(self._follow, mirror)

    async def _follow(self, mirror: _Mirror) -> None:
        """Write until nothing has changed since. One that could not be written waits for the next change."""
        try:
            while mirror.changed:
                await self._wait_due(mirror)
                begun = anyio.current_time()
                running = await self._write(mirror)
                took = anyio.current_time() - begun
                mirror.not_before = anyio.current_time() + min(took / _MAX_TIME_SHARE, _MAX_INTERVAL_S)
                if mirror.problem:
                    return
                if running and not mirror.changed:  # what it shows is not told
                    mirror.changed, mirror.first_change_at, mirror.last_change_at = True, begun, begun + _MAX_DELAY_S
        finally:
            mirror.is_followed = False

    async def _wait_due(self, mirror: _Mirror) -> None:
        while True:
            at = max(min(mirror.last_change_at + _QUIET_S, mirror.first_change_at + _MAX_DELAY_S), mirror.not_before)
            left = at - anyio.current_time()
            if left <= 0:
                return
            mirror.woken = anyio.Event()
            with anyio.move_on_after(left):
                await mirror.woken.wait()

    # Writing

    async def _write(self, mirror: _Mirror) -> bool:
        """Whether a cell runs, so that there will be more to write. A failure is told and remembered."""
        async with mirror.writing:
            mirror.changed = False
            if not await self._is_on(mirror):
                return False
            try:
                mirror.notebook, cells = await self._documents.contents(mirror.notebook)
                text = await self._text(mirror.notebook, cells)
                aside = await anyio.to_thread.run_sync(_replace, mirror, text)
            except (QuireError, OSError) as error:
                self._report_problem(mirror, error)
                return False
            except Exception as error:  # a fault of ours costs the mirror, not the notebook
                log.exception("mirroring notebook %r", mirror.notebook.name)
                self._report_problem(mirror, error)
                return False
            except BaseException:  # the server ends: it is written then
                mirror.changed = True
                raise
            mirror.problem = ""
            if aside:
                mirror.backup_notice = aside
                self._report(mirror, aside)
            return any(cell.state is CellState.RUNNING for cell in cells)

    async def _is_on(self, mirror: _Mirror) -> bool:
        """Whether it was not ended meanwhile, here or by another server. One that another server moved is followed."""
        if self._mirrors.get(mirror.notebook.id) is not mirror:
            return False
        try:
            fresh = await self._documents.reload(mirror.notebook)
        except NotFound:
            del self._mirrors[mirror.notebook.id]
            return False
        if fresh.mirror == str(mirror.path):
            return True
        del self._mirrors[mirror.notebook.id]
        moved = self._register(fresh)
        if moved is not None:
            self._mark_changed(moved)
        return False

    async def _text(self, notebook: Notebook, cells: list[Cell]) -> bytes:
        text = await anyio.to_thread.run_sync(self._dumps, notebook, cells)
        return text.encode("utf-8", "backslashreplace")

    def _report_problem(self, mirror: _Mirror, error: Exception) -> None:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).rstrip(".")
        sentence = f"{mirror.path} is not as the notebook is: {reason}. It is tried again at the next change."
        mirror.changed = True  # the server's end tries again
        if sentence != mirror.problem:
            mirror.problem = sentence
            self._report(mirror, sentence)

    def _report(self, mirror: _Mirror, sentence: str) -> None:
        log.warning("%s", sentence)
        self._add_notice(mirror.notebook, sentence)


def _replace(mirror: _Mirror, text: bytes) -> str:
    """On a thread of its own; what to say where a person's version was in its place."""
    try:
        with workspaces.pinned_path(mirror.path) as path:
            return _replace_at(mirror, path, text)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OperationFailed("a link leads elsewhere now") from error
        raise


def _replace_at(mirror: _Mirror, path: Path, text: bytes) -> str:
    new, aside = workspaces.digest(text), ""
    seen = _file_state(path)
    if new == mirror.digest and seen is not None and seen == mirror.written_state:
        return ""
    if path.is_symlink():
        raise OperationFailed("a link leads elsewhere now")
    if mirror.written_state is None:
        workspaces.remove_leftovers(path.parent)
    if seen is not None and seen != mirror.written_state and not workspaces.is_unchanged(path, mirror.digest, new):
        kept = workspaces.back_up(path)
        aside = f"Somebody changed {path.name}: their version is kept beside it as {kept.name}."
    mirror.written_state, mirror.digest = _state_of(workspaces.replace_file(path, text)), new
    return aside


def _resolve(path: str | Path) -> Path:
    """Where links lead: the file they lead to is written, and they stay."""
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):
        raise InvalidRequest(f"{str(path)[:200]!r} is not a path that can be followed.") from None


def _file_state(path: Path) -> tuple[int, int, int] | None:
    try:
        return _state_of(path.stat())
    except OSError:
        return None


def _state_of(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns
