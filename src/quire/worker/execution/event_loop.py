"""The event loop of a kernel's cells. Every cell finds it running; it really runs only while a cell awaits.

Notebook code expects a running loop: `asyncio.create_task()` works in a plain function. A cell that does not await
is executed without running the loop. Meanwhile the loop is *offered*: `get_running_loop()` returns it, and it says
that it is running. Scripts start a loop of their own: `asyncio.run()` and `run_until_complete()` check whether a
loop runs, and an offered loop does not count for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import threading
from asyncio import events
from collections.abc import Iterator
from typing import Any

_get_running_loop, _set_running_loop = events._get_running_loop, events._set_running_loop
_UNSET = object()
_current: Any = None  # None before the first cell
_offered_in = 0  # thread id


def existing() -> Any:
    """The loop of this kernel's cells; None before the first cell."""
    return _current


def current() -> Any:
    """The loop of this kernel's cells, created again if a cell closed it."""
    global _current
    if _current is None or _current.is_closed():
        _current = _loop_class()()  # one loop for all cells, so that connections of a cell stay open
        asyncio.set_event_loop(_current)
    return _current


def offer() -> None:
    """Called at the start of a cell."""
    global _offered_in
    loop = current()
    _offered_in = threading.get_ident()
    loop.offered = True
    _set_running_loop(loop)


def withdraw() -> None:
    """Called at the end of a cell."""
    if _current is not None:
        _current.offered = False
    _set_running_loop(None)


def withdraw_in_children() -> None:
    """A child process that a cell forks has no loop."""
    os.register_at_fork(after_in_child=withdraw)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that really runs in this thread. asyncio asks this before it starts a loop."""
    loop: Any = _get_running_loop()
    return None if getattr(loop, "offered", False) else loop


def wait_for(coroutine: Any) -> Any:
    """Run the loop until the coroutine has ended. Context variables that it sets stay set."""
    loop, context = current(), contextvars.copy_context()
    task = loop.create_task(coroutine, context=context)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        withdraw()  # the interrupt may have come while the loop was being offered again
        if not task.done():  # otherwise it would continue in the next cell that awaits
            task.cancel()
            with contextlib.suppress(RuntimeError):  # the end of that task stopped the loop
                loop.run_until_complete(asyncio.wait([task], timeout=1))
        loop.stop()  # run what is due now, or it would stop the next cell's loop
        loop.run_forever()
        raise
    finally:
        _copy_context(context)


def start_scheduled_tasks() -> None:
    """Start tasks that a cell scheduled, as in a notebook, where the loop runs between cells."""
    if _current is not None and _current._ready:
        wait_for(_nothing())


async def _nothing() -> None:
    pass


def _copy_context(context: contextvars.Context) -> None:
    for variable, value in context.items():
        if variable.get(_UNSET) is not value:
            variable.set(value)


@functools.cache
def _loop_class() -> Any:
    """Created with the first loop: in WebAssembly asyncio's own class is replaced after this module is imported."""
    events._get_running_loop, events._set_running_loop = running_loop, _set_or_offer

    class EventLoop(asyncio.SelectorEventLoop):
        offered = False

        def is_running(self) -> bool:
            return self.offered or super().is_running()

        def run_forever(self) -> None:
            with _not_offered(self):
                super().run_forever()

        def run_until_complete(self, future: Any) -> Any:
            with _not_offered(self):
                return super().run_until_complete(future)

        def close(self) -> None:
            with _not_offered(self):
                super().close()

    return EventLoop


@contextlib.contextmanager
def _not_offered(loop: Any) -> Iterator[None]:
    """Withdraw the offer while the loop really runs."""
    running: Any = _get_running_loop()
    if not loop.offered or running is not loop:
        yield
        return
    withdraw()
    try:
        yield
    finally:
        if not loop.is_closed():
            offer()


def _set_or_offer(loop: Any) -> None:
    """Replaces asyncio's function. When a loop that a cell started ends, the cell's loop is offered again."""
    if loop is None and _current is not None and _current.offered and _offered_in == threading.get_ident():
        loop = _current
    _set_running_loop(loop)
