"""How much a workspace may hold: looked at now and then, since nothing else stops many small files.

Past its quota a run that fills it is stopped, nothing more is written for callers, and each run is told, until it
holds less.
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
from quire.core.ports.files import Folders, Use
from quire.core.runs.active_run import ActiveRun, ActiveRuns, StopReason

log = logging.getLogger(__name__)
_TICK = 0.25  # seconds between two looks at what is due
_SOON, _LATE = 0.5, 2.0  # seconds between two counts while something runs
_RAREST = 60.0  # and while nothing does, or where counting takes long
_QUICK = 0.2  # seconds a count may take that a caller waits for
_SHARE = 20  # times as long as a count took, at least, until the next
_MORE_BYTES, _MORE_FILES = 2**20, 100  # that a run may add which began past the quota


@dataclass(frozen=True, kw_only=True)
class WorkspaceLimits:
    """The quota of each workspace; 0 is no limit."""

    bytes: int
    files: int

    def excess(self, use: Use) -> str:
        """Why it is too much, as a sentence that says what to do; "" where it is not."""
        least = "" if use.whole else "at least "
        if self.bytes and use.bytes > self.bytes:
            return (
                f"the workspace holds {least}{_size(use.bytes)}, over its quota of {_size(self.bytes)} "
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
class _Watched:
    """A workspace that something runs in, or ran."""

    path: str
    use: Use | None = None  # None until it is counted
    counted_at: float = 0.0
    took: float = 0.0  # seconds
    pause: float = 0.0  # seconds until the next count
    counting: anyio.Lock = field(default_factory=anyio.Lock)
    over: bool = False  # its quota
    began_over: dict[ActiveRun, Use] = field(default_factory=dict)  # runs that found it so


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
        self._watched: dict[str, _Watched] = {}

    async def watch(self) -> None:
        """Runs until cancelled."""
        if not self._limited:
            return
        async with background() as group:
            while True:
                await anyio.sleep(_TICK)
                now = anyio.current_time()
                for watched, notebooks in self._in_use():
                    if now >= watched.counted_at + watched.pause and not watched.counting.locked():
                        group.start_soon(self._look, watched, notebooks)
                        await anyio.lowlevel.checkpoint()

    async def begin_run(self, active: ActiveRun) -> str:
        """A run is about to begin: what it is to be told. It is counted anew only where it was too much."""
        watched = self._of(active.notebook)
        watched.pause = min(watched.pause, _floor(watched))
        if not watched.over:
            return ""
        use = await self._recent(watched, 0)
        excess = self._rules.excess(use) if use is not None else ""
        if use is None or not excess:
            return ""
        watched.began_over[active] = use
        return f"{_upper(excess)}: until then write_file is refused, and a cell that writes more is interrupted."

    async def check(self, notebook: Notebook, more: int) -> None:
        """Raises InvalidRequest where the workspace has no room for so many bytes more."""
        if not self._limited:
            return
        watched = self._of(notebook)
        tight = watched.use is not None and self._excess_with(watched.use, more)
        use = await self._recent(watched, 0 if tight else _LATE)
        if use is None:
            return  # what is wrong with it is said when it is written to
        if excess := self._rules.excess(use):
            raise InvalidRequest(f"Nothing was written: {excess}, then call again.")
        if excess := self._excess_with(use, more):
            raise InvalidRequest(f"Nothing was written: with {more:,} bytes more {excess}, then call again.")
        watched.use = Use(bytes=use.bytes + more, files=use.files + 1, whole=use.whole)

    async def _recent(self, watched: _Watched, seconds: float) -> Use | None:
        """What it held so long ago at most, longer where counting takes long; None where it cannot be counted."""
        old = anyio.current_time() - watched.counted_at > (seconds if watched.took < _QUICK else _floor(watched))
        try:
            return await self._count(watched) if watched.use is None or old else watched.use
        except QuireError as error:
            log.warning("counting the workspace %s: %s", watched.path, error)
            return None

    def warning(self, notebook: Notebook) -> str:
        """What the workspace held when it was last counted, where that is more than half of what it may; else ""."""
        use, rules = self._of(notebook).use, self._rules
        if use is not None and rules.bytes and use.bytes > rules.bytes / 2:
            return f"The workspace holds {_size(use.bytes)} of the {_size(rules.bytes)} it may."
        if use is not None and rules.files and use.files > rules.files / 2:
            return f"The workspace holds {use.files:,} of the {rules.files:,} files it may."
        return ""

    @property
    def _limited(self) -> bool:
        return bool(self._rules.bytes or self._rules.files)

    def _excess_with(self, use: Use, more: int) -> str:
        return self._rules.excess(Use(bytes=use.bytes + more, files=use.files + 1, whole=use.whole, deep=use.deep))

    def _of(self, notebook: Notebook) -> _Watched:
        path = self._workspace(notebook)
        found = self._watched.get(path)
        if found is None:
            found = self._watched[path] = _Watched(path)
        return found

    def _in_use(self) -> list[tuple[_Watched, list[Notebook]]]:
        """Workspaces that code may write to now, with the notebooks whose kernels live."""
        found: dict[str, tuple[_Watched, list[Notebook]]] = {}
        books = [active.notebook for active in self._active.list_begun()]
        idle = [status.notebook for status in self._slots.list_live() if status.idle is not None]
        for notebook in [*books, *idle]:
            watched = self._of(notebook)
            found.setdefault(watched.path, (watched, []))[1].append(notebook)
        return list(found.values())

    async def _look(self, watched: _Watched, notebooks: list[Notebook]) -> None:
        try:
            before, since = watched.use, watched.counted_at
            use = await self._count(watched)
            runs = [run for run in self._active.list_begun() if self._workspace(run.notebook) == watched.path]
            watched.began_over = {run: seen for run, seen in watched.began_over.items() if not run.done.is_set()}
            self._pace(watched, before, busy=bool(runs))
            if excess := self._rules.excess(use):
                self._stop(watched, use, excess, runs, since if before is not None else -math.inf)
                if not runs and before is not None and (_grew(before, use) or use.deep > before.deep):
                    await self._end_leftovers(notebooks, excess)
        except QuireError as error:
            watched.pause = _RAREST
            log.warning("counting the workspace %s: %s", watched.path, error)

    async def _count(self, watched: _Watched) -> Use:
        async with watched.counting:
            began = anyio.current_time()
            use = await self._folders.measure(watched.path)
            watched.counted_at = anyio.current_time()
            watched.took = watched.counted_at - began
            watched.use, watched.over = use, bool(self._rules.excess(use))
            return use

    def _pace(self, watched: _Watched, before: Use | None, *, busy: bool) -> None:
        """How soon it is counted again: the sooner, the more happens there."""
        floor = _floor(watched)
        longest = max(floor, _LATE if busy else _RAREST)
        watched.pause = min(longest, max(floor, watched.pause * 2)) if before == watched.use else floor

    def _stop(self, watched: _Watched, use: Use, excess: str, runs: list[ActiveRun], counted: float) -> None:
        """Stop the runs that fill it: those that ran when it was counted before and was not full, or that have added
        to what they found."""
        for run in runs:
            found = watched.began_over.get(run)
            if found is None and run.started_at > counted:
                watched.began_over[run] = use  # it may be another's doing
            elif found is None or use.deep or _grew(found, use, _MORE_BYTES, _MORE_FILES):
                run.stop(StopReason.QUOTA, f"{excess}, then go on.")

    async def _end_leftovers(self, notebooks: list[Notebook], excess: str) -> None:
        """End what earlier runs left running, by putting the namespace back: it fills the disk, and no run does."""
        for notebook in notebooks:
            async with self._slots.lock(notebook, is_request=False) as slot:
                if slot.kernel is not None and slot.kernel.alive and not slot.request_count:
                    await slot.kernel.kill()
                    await self._recovery.revive(slot)
                    self._slots.add_notice(notebook, f"What ran on in the background was ended: {excess}.")


def _floor(watched: _Watched) -> float:
    """Seconds between two counts at the least."""
    return min(_RAREST, max(_SOON, _SHARE * watched.took))


def _grew(before: Use, now: Use, bytes: int = 0, files: int = 0) -> bool:
    return now.bytes > before.bytes + bytes or now.files > before.files + files


def _size(length: int) -> str:
    for unit, bytes in (("GiB", 2**30), ("MiB", 2**20)):
        if length >= bytes:
            return f"{length / bytes:,.1f} {unit}"
    return f"{length / 2**10:.1f} KiB"


def _upper(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
