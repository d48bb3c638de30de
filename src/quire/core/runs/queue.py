"""Who may run now and who is next: principals take turns, and each principal's runs keep their order."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

import anyio

from quire.core.errors import OperationFailed
from quire.core.model import NewCell, Principal
from quire.core.ops.change_bus import Change, Feed
from quire.core.phrases import count
from quire.core.ports.store import Store
from quire.core.runs.active_run import ActiveRun


class Places:
    """Room for so many runs at once, of all and of each principal; 0 is no limit."""

    def __init__(self, most: int = 0, most_each: int = 0) -> None:
        self._most = most
        self._most_each = most_each
        self._taken: Counter[Principal] = Counter()
        self._lines: OrderedDict[Principal, deque[anyio.Event]] = OrderedDict()  # whose turn is next comes first

    def take(self, who: Principal) -> bool:
        """A place at once, where there is one and none of theirs waits."""
        if who in self._lines or not self._free(who):
            return False
        self._taken[who] += 1
        return True

    async def wait(self, who: Principal) -> None:
        """Until there is a place, and have it. Whoever stops waiting has none."""
        if self.take(who):
            return
        place = anyio.Event()
        self._lines.setdefault(who, deque()).append(place)
        try:
            await place.wait()
        except BaseException:
            if place.is_set():
                self.leave(who)
            else:
                self._lines[who].remove(place)
                self._tidy(who)
            raise

    def leave(self, who: Principal) -> None:
        """Give a place back; the next of those who wait have it."""
        self._taken[who] -= 1
        if not self._taken[who]:
            del self._taken[who]
        while (following := next((each for each in self._lines if self._free(each)), None)) is not None:
            self._lines[following].popleft().set()
            self._lines.move_to_end(following)
            self._tidy(following)
            self._taken[following] += 1

    def why(self, who: Principal) -> str:
        """What a run of theirs waits for."""
        if self._most_each and self._taken[who] >= self._most_each:
            return (
                f"It waits for its turn: this user has {count(self._taken[who], 'run')} under way, as many as may be "
                "at once (setting limits.max_runs_per_user). It begins when one of them ends."
            )
        return (
            f"It waits for its turn: {count(self._taken.total(), 'run')} under way on this server, as many as may be "
            "at once (setting limits.max_runs). Users take turns; it begins when its own comes."
        )

    def _free(self, who: Principal) -> bool:
        if self._most_each and self._taken[who] >= self._most_each:
            return False
        return not self._most or self._taken.total() < self._most

    def _tidy(self, who: Principal) -> None:
        if not self._lines[who]:
            del self._lines[who]


class Queue:
    """Where runs wait for a place: each is a cell meanwhile, says what it waits for, and can be given up. Its time does
    not count before it begins."""

    def __init__(self, places: Places, store: Store, feed: Feed, max_cells: int) -> None:
        self._places = places
        self._store = store
        self._feed = feed
        self._max_cells = max_cells

    async def enter(self, active: ActiveRun) -> None:
        """Have a place. Raises OperationFailed where the run is given up first."""
        if active.stopping is not None:
            return  # it was while it waited for the notebook's turn
        if not self._places.take(active.notebook.owner):
            await self._wait(active)
        active.placed = True

    def leave(self, active: ActiveRun) -> None:
        if active.placed:
            active.placed = False
            self._places.leave(active.notebook.owner)

    async def _wait(self, active: ActiveRun) -> None:
        owner = active.notebook.owner
        with anyio.CancelScope() as active.queued:
            active.waits = self._places.why(owner)
            with anyio.CancelScope(shield=True):
                await self._show(active)
            await self._places.wait(owner)
        given_up, active.queued = active.queued.cancelled_caught, None
        if given_up:
            raise OperationFailed(
                "The run was given up while it waited for its turn. Nothing ran; the cell stays as it is."
            )

    async def _show(self, active: ActiveRun) -> None:
        """Add the cell that is to run, where it is new."""
        if isinstance(active.asked, NewCell):
            added = await self._store.add_cells(active.notebook.id, [active.asked], at=None, limit=self._max_cells)
            active.asked = added[0]
            self._feed.tell(Change(notebook=active.notebook))
