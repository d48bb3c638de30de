"""Mirrors: files that are written soon after each change of their notebook, whole or not at all.

If a person changed such a file meanwhile, their version is kept beside it under another name, and a notice says so.
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
from quire.core.notebooks import safe_files
from quire.core.notebooks.documents import Documents
from quire.core.ops.change_bus import Change, Feed
from quire.core.ops.task_groups import background
from quire.core.ports.store import NotebookStore

log = logging.getLogger(__name__)
_QUIET_S = 0.3  # without a change before a write
_MAX_DELAY_S = 2.0  # from a change to its write while others follow or a cell runs
_MAX_TIME_SHARE = 0.05  # of the time may go into writing one mirror
_MAX_INTERVAL_S = 60.0  # between two writes
_SHUTDOWN_TIMEOUT_S = 20.0  # for the last writes


@dataclass
class _Mirror:
    notebook: Notebook
    path: Path
    is_followed: bool = False  # by a task
    changed: bool = False  # since the last write
    first_change_at: float = 0.0  # of those not written yet
    last_change_at: float = 0.0
    not_before: float = 0.0
    written_state: tuple[int, int, int] | None = None  # of the file after the last write
    digest: str = ""  # of what was written last
    problem: str = ""
    backup_notice: str = ""  # says where a person's version is
    writing: anyio.Lock = field(default_factory=anyio.Lock)
    woken: anyio.Event = field(default_factory=anyio.Event)


class Mirrors:
    def __init__(
        self,
        documents: Documents,
        store: NotebookStore,
        feed: Feed,
        dumps: Callable[[Notebook, list[Cell]], str],
        add_notice: Callable[[Notebook, str], None] = lambda notebook, sentence: None,
    ) -> None:
        """`dumps` finds the format in the notebook's mirror path. `add_notice` adds a notice to the next answer."""
        self._documents = documents
        self._store = store
        self._feed = feed
        self._dumps = dumps
        self._add_notice = add_notice
        self._mirrors: dict[NotebookId, _Mirror] = {}
        self._group: TaskGroup | None = None

    @asynccontextmanager
    async def open(self, *, restore: bool = True) -> AsyncIterator[None]:
        """Write mirrors as long as the block lasts; leaving it writes what is left. With `restore` mirrors whose file
        is gone are written again."""
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
                    for mirror in [mirror for mirror in self._mirrors.values() if mirror.changed or mirror.is_followed]:
                        await self._write(mirror)

    async def set(self, notebook: Notebook, path: str | Path) -> Notebook:
        """Mirror the notebook to this file from now on, overwriting it; "" ends that. Raises OperationFailed, and
        changes nothing, if it cannot be written."""
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
        if await self._write(mirror):  # a cell runs
            self._mark_changed(mirror)
        if mirror.problem:
            raise OperationFailed(mirror.problem)
        return changed

    async def _write_first(self, mirror: _Mirror) -> None:
        fresh, cells = await self._documents.contents(mirror.notebook)
        text = await self._text(replace(fresh, mirror=str(mirror.path)), cells)
        await anyio.to_thread.run_sync(safe_files.write_resolved, mirror.path, text.decode("utf-8"))
        mirror.digest, mirror.written_state = safe_files.digest(text), _file_state(mirror.path)

    def problem(self, notebook: Notebook) -> str:
        """Why the mirror is out of date, and where a person's version is; "" if there is nothing to report."""
        mirror = self._mirrors.get(notebook.id)
        return " ".join(filter(None, (mirror.problem, mirror.backup_notice))) if mirror is not None else ""

    async def _refuse_shared(self, notebook: Notebook, path: Path) -> None:
        for other in await self._store.list_mirrored():
            if other.id != notebook.id and other.mirror == str(path):
                raise InvalidRequest(f"{path} is the mirror of notebook {other.name!r}. Choose another path.")

    def _on_change(self, change: Change) -> None:
        mirror = self._mirrors.get(change.notebook.id) or self._register(change.notebook)
        if mirror is not None:
            self._mark_changed(mirror)

    def _register(self, notebook: Notebook) -> _Mirror | None:
        """Follow a mirror that was set by another server or before a restart."""
        if not notebook.mirror or any(str(mirror.path) == notebook.mirror for mirror in self._mirrors.values()):
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
        """Write until there are no new changes. After a failure wait for the next change."""
        try:
            while mirror.changed:
                await self._wait_due(mirror)
                begun = anyio.current_time()
                running = await self._write(mirror)
                took = anyio.current_time() - begun
                mirror.not_before = anyio.current_time() + min(took / _MAX_TIME_SHARE, _MAX_INTERVAL_S)
                if mirror.problem:
                    return
                if running and not mirror.changed:  # its output causes no change events
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

    async def _write(self, mirror: _Mirror) -> bool:
        """Write the mirror. Returns whether a cell runs, so that there will be more to write. Failures are reported."""
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
            except Exception as error:  # a bug here costs the mirror, not the notebook
                log.exception("mirroring notebook %r", mirror.notebook.name)
                self._report_problem(mirror, error)
                return False
            except BaseException:  # shutdown, which writes it again
                mirror.changed = True
                raise
            mirror.problem = ""
            if aside:
                mirror.backup_notice = aside
                self._report(mirror, aside)
            return any(cell.state is CellState.RUNNING for cell in cells)

    async def _is_on(self, mirror: _Mirror) -> bool:
        """Whether it is still set, here and by other servers. If another server moved it, follow that one."""
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
        sentence = f"{mirror.path} could not be updated: {reason}. The next change tries again."
        mirror.changed = True  # shutdown tries again
        if sentence != mirror.problem:
            mirror.problem = sentence
            self._report(mirror, sentence)

    def _report(self, mirror: _Mirror, sentence: str) -> None:
        log.warning("%s", sentence)
        self._add_notice(mirror.notebook, sentence)


def _replace(mirror: _Mirror, text: bytes) -> str:
    """Write the file, in a thread. Returns a notice if a person's version was there."""
    try:
        with safe_files.pinned_path(mirror.path) as path:
            return _replace_at(mirror, path, text)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OperationFailed("a link leads elsewhere now") from error
        raise


def _replace_at(mirror: _Mirror, path: Path, text: bytes) -> str:
    new, aside = safe_files.digest(text), ""
    seen = _file_state(path)
    if new == mirror.digest and seen is not None and seen == mirror.written_state:
        return ""
    if path.is_symlink():
        raise OperationFailed("a link leads elsewhere now")
    if mirror.written_state is None:
        safe_files.remove_leftovers(path.parent)
    if seen is not None and seen != mirror.written_state and not safe_files.is_unchanged(path, mirror.digest, new):
        kept = safe_files.back_up(path)
        aside = f"{path.name} was changed outside of Quire: that version is kept beside it as {kept.name}."
    mirror.written_state, mirror.digest = _state_of(safe_files.replace_file(path, text)), new
    return aside


def _resolve(path: str | Path) -> Path:
    """The path without links. The file that a link points to is written; the link stays."""
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
