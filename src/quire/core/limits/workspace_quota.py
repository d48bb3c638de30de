"""Workspace quotas: limit the bytes and files of workspaces by counting them regularly.

While a workspace is over its quota, runs that fill it are stopped, writes of callers are refused, and each run gets a
notice.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from quire.core.errors import InvalidRequest, QuireError
from quire.core.kernels.recovery import KernelRecovery
from quire.core.kernels.slots import KernelSlots
from quire.core.model import Notebook
from quire.core.ops.task_groups import background
from quire.core.ports.files import Folders, FolderUsage
from quire.core.runs.active_run import ActiveRun, ActiveRuns, StopReason

log = logging.getLogger(__name__)
_TICK_S = 0.25  # between two checks of what is due
_MIN_INTERVAL_S, _BUSY_INTERVAL_S = 0.5, 2.0  # between two counts while something runs
_MAX_INTERVAL_S = 60.0  # while nothing runs, or if counting takes long
_FAST_COUNT_S = 0.2  # a caller waits for counts that take less
_INTERVAL_FACTOR = 20  # times the duration of a count until the next, at least
_GRACE_BYTES, _GRACE_FILES = 2**20, 100  # that a run may add which began over the quota


@dataclass(frozen=True, kw_only=True)
class WorkspaceLimits:
    """The quota of each workspace; 0 is no limit."""

    bytes: int
    files: int

    def excess(self, use: FolderUsage) -> str:
        """Why the usage is over the quota and what to do, as a sentence; "" if it is not."""
        least = "" if use.whole else "at least "
        if self.bytes and use.bytes > self.bytes:
            return (
                f"the workspace holds {least}{_format_bytes(use.bytes)}, over its quota of {_format_bytes(self.bytes)} "
                "(setting limits.max_workspace_bytes). Delete files there"
            )
        if self.files and use.files > self.files:
            return (
                f"the workspace holds {least}{use.files:,} files, over its quota of {self.files:,} "
                "(setting limits.max_workspace_files). Delete some"
            )
        if use.deep:
            return "the workspace has folders nested too deeply to be counted. Delete them (shutil.rmtree)"
        return ""


@dataclass(eq=False)
class _WatchedFolder:
    """A workspace in which something runs or ran."""

    path: str
    use: FolderUsage | None = None  # None until it is counted
    counted_at: float = 0.0
    count_seconds: float = 0.0  # seconds
    interval: float = 0.0  # seconds until the next count
    count_lock: anyio.Lock = field(default_factory=anyio.Lock)
    is_over: bool = False  # over its quota
    began_over: dict[ActiveRun, FolderUsage] = field(default_factory=dict)  # runs that began while it was over


class WorkspaceQuota:
    def __init__(
        self,
        folders: Folders,
        active: ActiveRuns,
        slots: KernelSlots,
        recovery: KernelRecovery,
        workspace: Callable[[Notebook], str],
        rules: WorkspaceLimits,
    ) -> None:
        self._folders = folders
        self._active = active
        self._slots = slots
        self._recovery = recovery
        self._workspace = workspace
        self._rules = rules
        self._folders_by_path: dict[str, _WatchedFolder] = {}

    async def watch(self) -> None:
        """Runs until cancelled."""
        if not self._limited:
            return
        async with background() as group:
            while True:
                await anyio.sleep(_TICK_S)
                now = anyio.current_time()
                for folder, notebooks in self._in_use():
                    if now >= folder.counted_at + folder.interval and not folder.count_lock.locked():
                        group.start_soon(self._check_folder, folder, notebooks)
                        await anyio.lowlevel.checkpoint()

    async def begin_run(self, active: ActiveRun) -> str:
        """Return the notice for a run that begins. The workspace is counted again only if it was over its quota."""
        folder = self._folder(active.notebook)
        folder.interval = min(folder.interval, _min_interval(folder))
        if not folder.is_over:
            return ""
        use = await self._recent(folder, 0)
        excess = self._rules.excess(use) if use is not None else ""
        if use is None or not excess:
            return ""
        folder.began_over[active] = use
        return f"{_capitalize(excess)}: until then write_file is refused, and a cell that writes more is interrupted."

    async def check_space(self, notebook: Notebook, more: int) -> None:
        """Raises InvalidRequest if the workspace has no room for `more` bytes."""
        if not self._limited:
            return
        folder = self._folder(notebook)
        tight = folder.use is not None and self._excess_with(folder.use, more)
        use = await self._recent(folder, 0 if tight else _BUSY_INTERVAL_S)
        if use is None:
            return  # the write itself reports the error
        if excess := self._rules.excess(use):
            raise InvalidRequest(f"Nothing was written: {excess}, then call again.")
        if excess := self._excess_with(use, more):
            raise InvalidRequest(f"Nothing was written: with {more:,} more bytes {excess}, then call again.")
        folder.use = FolderUsage(bytes=use.bytes + more, files=use.files + 1, whole=use.whole)

    async def _recent(self, folder: _WatchedFolder, seconds: float) -> FolderUsage | None:
        """The usage, at most `seconds` old, or older if counting takes long; None if it cannot be counted."""
        old = anyio.current_time() - folder.counted_at > (
            seconds if folder.count_seconds < _FAST_COUNT_S else _min_interval(folder)
        )
        try:
            return await self._count(folder) if folder.use is None or old else folder.use
        except QuireError as error:
            log.warning("counting the workspace %s: %s", folder.path, error)
            return None

    def warning(self, notebook: Notebook) -> str:
        """The last counted usage as a sentence if it is more than half of the quota, else ""."""
        use, rules = self._folder(notebook).use, self._rules
        if use is not None and rules.bytes and use.bytes > rules.bytes / 2:
            return f"The workspace holds {_format_bytes(use.bytes)} of the {_format_bytes(rules.bytes)} it may."
        if use is not None and rules.files and use.files > rules.files / 2:
            return f"The workspace holds {use.files:,} of the {rules.files:,} files it may."
        return ""

    @property
    def _limited(self) -> bool:
        return bool(self._rules.bytes or self._rules.files)

    def _excess_with(self, use: FolderUsage, more: int) -> str:
        return self._rules.excess(
            FolderUsage(bytes=use.bytes + more, files=use.files + 1, whole=use.whole, deep=use.deep)
        )

    def _folder(self, notebook: Notebook) -> _WatchedFolder:
        path = self._workspace(notebook)
        found = self._folders_by_path.get(path)
        if found is None:
            found = self._folders_by_path[path] = _WatchedFolder(path)
        return found

    def _in_use(self) -> list[tuple[_WatchedFolder, list[Notebook]]]:
        """Workspaces that code may write to now, with the notebooks that have a live kernel."""
        found: dict[str, tuple[_WatchedFolder, list[Notebook]]] = {}
        books = [active.notebook for active in self._active.list_begun()]
        idle = [status.notebook for status in self._slots.list_live() if status.idle is not None]
        for notebook in [*books, *idle]:
            folder = self._folder(notebook)
            found.setdefault(folder.path, (folder, []))[1].append(notebook)
        return list(found.values())

    async def _check_folder(self, folder: _WatchedFolder, notebooks: list[Notebook]) -> None:
        try:
            before, since = folder.use, folder.counted_at
            use = await self._count(folder)
            runs = [run for run in self._active.list_begun() if self._workspace(run.notebook) == folder.path]
            folder.began_over = {run: seen for run, seen in folder.began_over.items() if not run.done.is_set()}
            self._set_interval(folder, before, busy=bool(runs))
            if excess := self._rules.excess(use):
                self._stop(folder, use, excess, runs, since if before is not None else -math.inf)
                if not runs and before is not None and (_has_grown(before, use) or use.deep > before.deep):
                    await self._end_background_writers(notebooks, excess)
        except QuireError as error:
            folder.interval = _MAX_INTERVAL_S
            log.warning("counting the workspace %s: %s", folder.path, error)

    async def _count(self, folder: _WatchedFolder) -> FolderUsage:
        async with folder.count_lock:
            began = anyio.current_time()
            use = await self._folders.measure(folder.path)
            folder.counted_at = anyio.current_time()
            folder.count_seconds = folder.counted_at - began
            folder.use, folder.is_over = use, bool(self._rules.excess(use))
            return use

    def _set_interval(self, folder: _WatchedFolder, before: FolderUsage | None, *, busy: bool) -> None:
        """Set when it is counted again: earlier if it changed since the last count."""
        floor = _min_interval(folder)
        longest = max(floor, _BUSY_INTERVAL_S if busy else _MAX_INTERVAL_S)
        folder.interval = min(longest, max(floor, folder.interval * 2)) if before == folder.use else floor

    def _stop(
        self, folder: _WatchedFolder, use: FolderUsage, excess: str, runs: list[ActiveRun], counted: float
    ) -> None:
        """Stop the runs that fill the workspace: those that ran at the last count, when it was not over its quota, and
        those that have added to what they found."""
        for run in runs:
            found = folder.began_over.get(run)
            if found is None and run.started_at > counted:
                folder.began_over[run] = use  # another run may have filled it
            elif found is None or use.deep or _has_grown(found, use, _GRACE_BYTES, _GRACE_FILES):
                run.stop(StopReason.QUOTA, f"{excess}, then go on.")

    async def _end_background_writers(self, notebooks: list[Notebook], excess: str) -> None:
        """Restore the namespace, which ends the threads and processes of earlier runs that fill the disk."""
        for notebook in notebooks:
            async with self._slots.lock(notebook, is_request=False) as slot:
                if slot.kernel is not None and slot.kernel.alive and not slot.request_count:
                    await slot.kernel.kill()
                    await self._recovery.revive(slot)
                    self._slots.add_notice(notebook, f"What ran on in the background was ended: {excess}.")


def _min_interval(folder: _WatchedFolder) -> float:
    """The minimum of seconds between two counts."""
    return min(_MAX_INTERVAL_S, max(_MIN_INTERVAL_S, _INTERVAL_FACTOR * folder.count_seconds))


def _has_grown(before: FolderUsage, now: FolderUsage, bytes: int = 0, files: int = 0) -> bool:
    return now.bytes > before.bytes + bytes or now.files > before.files + files


def _format_bytes(length: int) -> str:
    for unit, bytes in (("GiB", 2**30), ("MiB", 2**20)):
        if length >= bytes:
            return f"{length / bytes:,.1f} {unit}"
    return f"{length / 2**10:.1f} KiB"


def _capitalize(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
