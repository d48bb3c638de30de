"""Limits for what kernels send: time of the event loop, memory of the server, and notifications per second."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from quire.wire.messages import Printed

MAX_WAITING_BYTES = 4 << 20
"""Events of one kernel that may be queued before the kernel has to wait."""

_SLICE_S = 0.005  # processor time in one turn of the event loop
_PAUSE_FACTOR = 2  # reading from all kernels gets at most a third of the event loop
_CAPABILITIES_INTERVAL_S = 0.1
_YIELD_BYTES = 128 << 10  # of events taken in one turn of the event loop

Capabilities = list[dict[str, Any]]


class LoopShare:
    """Limits the part of an event loop's time that goes into parsing messages of kernels. Short work is not limited."""

    _shares: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopShare]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._resumes_at = 0.0

    @classmethod
    def for_loop(cls, loop: asyncio.AbstractEventLoop) -> LoopShare:
        return cls._shares.setdefault(loop, cls())

    def pause_after(self, spent: float) -> float:
        """Seconds until a kernel that used this much processor time may continue. Several busy kernels take turns."""
        now = time.monotonic()
        self._resumes_at = max(self._resumes_at, now) + _PAUSE_FACTOR * spent
        return self._resumes_at - now


class TimeSlice:
    """One kernel's part of a turn of the event loop."""

    def __init__(self) -> None:
        self._started = time.thread_time()

    @property
    def spent(self) -> float:
        return time.thread_time() - self._started

    @property
    def is_used_up(self) -> bool:
        return self.spent > _SLICE_S


class EventQueue:
    """Events of a kernel, with the approximate memory each takes."""

    def __init__(self) -> None:
        self._events: deque[tuple[Any, int]] = deque()
        self._arrived = asyncio.Event()
        self._bytes_in_turn = 0  # since other tasks had a turn
        self.size = 0  # in bytes

    @property
    def is_full(self) -> bool:
        return self.size >= MAX_WAITING_BYTES

    def put(self, event: Any, size: int) -> None:
        self._events.append((event, size))
        self.size += size
        self._arrived.set()

    def put_first(self, events: list[tuple[Any, int]]) -> None:
        """Put events before the queued ones."""
        self._events.extendleft(reversed(events))
        self.size += sum(size for _, size in events)

    def peek(self) -> Any:
        return self._events[0][0]

    async def wait(self) -> None:
        """Wait for an event. After many events, other tasks of the event loop get a turn first."""
        if self._bytes_in_turn >= _YIELD_BYTES:
            self._bytes_in_turn = 0
            await asyncio.sleep(0)
        while not self._events:
            self._bytes_in_turn = 0
            self._arrived.clear()
            await self._arrived.wait()

    def take(self) -> tuple[Any, int]:
        event, size = self._events.popleft()
        self.size -= size
        self._bytes_in_turn += size
        return event, size

    def __iter__(self) -> Any:
        return (event for event, _ in self._events)


class DeferredEvents:
    """Events received while a question is open. They belong to the next run; after a limit the rest is dropped."""

    def __init__(self) -> None:
        self._events: list[tuple[Any, int]] = []
        self._size = self._dropped = 0  # bytes

    def add(self, event: Any, size: int) -> None:
        if self._size < MAX_WAITING_BYTES:
            self._events.append((event, size))
            self._size += size
        else:
            self._dropped += len(event.data) if isinstance(event, Printed) else size

    def events(self) -> list[tuple[Any, int]]:
        if not self._dropped:
            return self._events
        note = f"\n[... {self._dropped:,} bytes that were shown between two runs are left out here ...]\n".encode()
        return [*self._events, (Printed(stream="stderr", data=note), len(note))]


class LatestCapabilities:
    """Publishes the capabilities that a kernel's code defines; only the newest, if they change often."""

    def __init__(self, publish: Callable[[Capabilities], None]) -> None:
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._latest: Capabilities | None = None
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def put(self, capabilities: Capabilities) -> None:
        self._latest = capabilities
        if self._loop.time() >= self._not_before:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._not_before, self.flush)

    def flush(self) -> None:
        """Publish now, as at the end of a run."""
        latest = self._latest
        self.close()
        if latest is not None:
            self._not_before = self._loop.time() + _CAPABILITIES_INTERVAL_S
            self._publish(latest)

    def close(self) -> None:
        self._latest = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
