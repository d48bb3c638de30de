"""Runs a program until it returns or is told to stop, and makes sure that it then ends.

SIGTERM and Ctrl-C cancel the program, which closes what it opened. A shutdown that takes long logs what it waits for.
One that does not end is cut short: everything acknowledged is on disk by then, and kernels end with the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)

SLOW_AFTER_S = 5.0
"""A shutdown that takes longer logs what it waits for."""

GIVE_UP_AFTER_S = 20.0
"""A shutdown that takes longer than this, beyond the time allowed for saving, ends without closing the rest."""

_MAX_TASKS_LOGGED = 20
_MAX_FRAMES_LOGGED = 8


class Shutdown:
    """The end of one program: who asked for it, and how long it may take."""

    def __init__(self, on_begin: Callable[[], None] = lambda: None, saving_s: float = 0.0) -> None:
        """`on_begin` is called once, before anything is closed. `saving_s` is how long saving may take."""
        self._on_begin = on_begin
        self._deadline_s = GIVE_UP_AFTER_S + saving_s
        self._begun = False
        self._finished = threading.Event()
        self.signal: int | None = None  # the first signal that came

    def run(self, main: Callable[[], Awaitable[Any]]) -> Any:
        """Run to the end. The result, or 128 plus the signal that ended it."""
        try:
            return asyncio.run(self._until_told(main))
        finally:
            self._finished.set()

    def begin(self) -> None:
        """The program is about to end: from now on it is watched. Does nothing the second time."""
        if self._begun:
            return
        self._begun = True
        self._on_begin()
        loop = asyncio.get_running_loop()
        loop.call_later(SLOW_AFTER_S, self._log_tasks, loop)
        threading.Thread(target=self._enforce, args=(loop,), name="quire-shutdown", daemon=True).start()

    async def _until_told(self, main: Callable[[], Awaitable[Any]]) -> Any:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(main())

        def stop(number: int) -> None:
            if self.signal is not None:
                return  # it is stopping already
            self.signal = number
            with contextlib.suppress(NotImplementedError):  # on Windows
                loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C ends it at once
            self.begin()
            task.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, stop, number)
            except NotImplementedError:  # on Windows
                signal.signal(number, lambda number, _: loop.call_soon_threadsafe(stop, number))
        try:
            return await task
        except asyncio.CancelledError:
            if self.signal is None:
                raise
            return 128 + self.signal
        finally:
            self.begin()  # the event loop has yet to close: that is watched, too

    def _log_tasks(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._finished.is_set():
            _log.warning("Shutdown takes long. It waits for:\n%s", "\n".join(_describe_tasks(loop)))

    def _enforce(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own: the event loop may be what hangs."""
        if self._finished.wait(self._deadline_s):
            return
        _log.error(
            "Shutdown did not end within %g s and was cut short. It waited for:\n%s",
            self._deadline_s,
            "\n".join([*_describe_tasks(loop), *_describe_threads()]),
        )
        for handler in logging.getLogger().handlers:
            handler.flush()
        os._exit(128 + (self.signal or signal.SIGTERM))


def _describe_tasks(loop: asyncio.AbstractEventLoop) -> Iterator[str]:
    tasks = list(asyncio.all_tasks(loop))
    for task in tasks[:_MAX_TASKS_LOGGED]:
        yield f"  {task.get_name()}: {' > '.join(_await_chain(task)) or 'not started'}"
    if len(tasks) > _MAX_TASKS_LOGGED:
        yield f"  and {len(tasks) - _MAX_TASKS_LOGGED} more tasks"


def _await_chain(task: asyncio.Task[Any]) -> Iterator[str]:
    """From the task's own coroutine to the innermost one that it awaits."""
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            yield f"{frame.f_code.co_qualname}:{frame.f_lineno}"
            awaited = awaited.cr_await if hasattr(awaited, "cr_await") else awaited.ag_await
        else:  # the step of an async generator: its referents lead to the generator
            awaited = next((each for each in gc.get_referents(awaited) if hasattr(each, "ag_frame")), None)


def _describe_threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            stack = traceback.extract_stack(frame)[-_MAX_FRAMES_LOGGED:]
            calls = " > ".join(f"{Path(call.filename).name}:{call.lineno} {call.name}" for call in stack)
            yield f"  thread {names.get(ident, ident)}: {calls}"
