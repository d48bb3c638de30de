"""The run queue: users take turns for run slots, and the runs of each user keep their order."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

import anyio

from quire.core.errors import OperationFailed
from quire.core.model import NewCell, Principal
from quire.core.ops.change_bus import Change, Feed
from quire.core.phrases import count
from quire.core.ports.store import NotebookStore
from quire.core.runs.active_run import RunState


class RunSlots:
    """Limits the runs under way, in total and per user. 0 is no limit."""

    def __init__(self, limit: int = 0, limit_per_user: int = 0) -> None:
        self._limit = limit
        self._limit_per_user = limit_per_user
        self._used: Counter[Principal] = Counter()
        self._waiting: OrderedDict[Principal, deque[anyio.Event]] = OrderedDict()  # the user whose turn is next first

    def try_acquire(self, user: Principal) -> bool:
        """Take a slot if one is free and no other run of this user waits."""
        if user in self._waiting or not self._is_free(user):
            return False
        self._used[user] += 1
        return True

    async def acquire(self, user: Principal) -> None:
        """Wait for a slot and take it. A cancelled wait takes none."""
        if self.try_acquire(user):
            return
        granted = anyio.Event()
        self._waiting.setdefault(user, deque()).append(granted)
        try:
            await granted.wait()
        except BaseException:
            if granted.is_set():
                self.release(user)
            else:
                self._waiting[user].remove(granted)
                self._drop_if_empty(user)
            raise

    def release(self, user: Principal) -> None:
        """Give a slot back, and grant it to the next that waits."""
        self._used[user] -= 1
        if not self._used[user]:
            del self._used[user]
        while (following := next((waiting for waiting in self._waiting if self._is_free(waiting)), None)) is not None:
            self._waiting[following].popleft().set()
            self._waiting.move_to_end(following)
            self._drop_if_empty(following)
            self._used[following] += 1

    def wait_reason(self, user: Principal) -> str:
        """Why a run of this user has to wait, as a sentence."""
        if self._is_user_full(user):
            return (
                f"It waits for its turn: this user has {count(self._used[user], 'run')} under way, the limit "
                "(setting limits.max_runs_per_user). It begins when one of them ends."
            )
        return (
            f"It waits for its turn: {count(self._used.total(), 'run')} under way on this server, the limit "
            "(setting limits.max_runs). Users take turns; it begins when its turn comes."
        )

    def _is_user_full(self, user: Principal) -> bool:
        return bool(self._limit_per_user) and self._used[user] >= self._limit_per_user

    def _is_free(self, user: Principal) -> bool:
        return not self._is_user_full(user) and (not self._limit or self._used.total() < self._limit)

    def _drop_if_empty(self, user: Principal) -> None:
        if not self._waiting[user]:
            del self._waiting[user]


class RunQueue:
    """Runs wait here for a slot. A waiting run is a cell of the notebook, and its timeout does not count yet."""

    def __init__(self, slots: RunSlots, store: NotebookStore, feed: Feed, max_cells: int) -> None:
        self._slots = slots
        self._store = store
        self._feed = feed
        self._max_cells = max_cells

    async def enter(self, state: RunState) -> None:
        """Take a slot. Raises OperationFailed if the run is stopped while it waits."""
        if state.stop_reason is not None:
            return  # it was stopped while it waited for the kernel
        user = state.notebook.owner
        if not self._slots.try_acquire(user):
            state.wait_reason = self._slots.wait_reason(user)
            try:
                await self._wait(state)
            finally:
                state.wait_reason = ""
        state.has_slot = True

    def leave(self, state: RunState) -> None:
        if state.has_slot:
            state.has_slot = False
            self._slots.release(state.notebook.owner)

    async def _wait(self, state: RunState) -> None:
        with state.stop_scope() as scope:
            if isinstance(state.target, NewCell):
                with anyio.CancelScope(shield=True):
                    await self.add_cell(state)
            await self._slots.acquire(state.notebook.owner)
        if scope.cancelled_caught:
            raise OperationFailed(
                "The run was given up while it waited for its turn. Nothing ran; the cell is unchanged."
            )

    async def add_cell(self, state: RunState, at: int | None = None) -> None:
        """Add the new cell that is to run to the notebook, so that it is visible while it waits."""
        assert isinstance(state.target, NewCell)
        (state.target,) = await self._store.add_cells(state.notebook.id, [state.target], at=at, limit=self._max_cells)
        self._feed.tell(Change(notebook=state.notebook))
