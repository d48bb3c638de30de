"""Delay interrupts while a frame is sent, which would break the protocol, and during asyncio's own code, which would
leave the event loop in an inconsistent state."""

from __future__ import annotations

import asyncio
import threading
import types

from quire.worker.execution import event_loop

_LOOP_MODULES = ("asyncio", "selectors")


class Interrupts:
    """One per process. An interrupt waits while the main thread holds this, and is raised on release. One that comes
    in the event loop's own code is raised in the loop's next turn."""

    def __init__(self) -> None:
        self.held = False  # by the main thread
        self.pending: BaseException | None = None
        self._main = threading.get_ident()

    def hold(self) -> bool:
        """Delay interrupts. True if the caller must release. Threads other than the main one are never interrupted."""
        if self.held or threading.get_ident() != self._main:
            return False
        self.held = True
        return True

    def release(self) -> None:
        self.held = False
        if self.pending is not None:
            self._raise(self.pending)

    def deliver(self, error: BaseException, frame: types.FrameType | None = None) -> None:
        """Called by signal handlers with the interrupted frame: raise now or later. If one waits for a loop that
        does not continue, the second is raised now."""
        if self.held:
            self.pending = error
        elif self.pending is None and (loop := _busy_loop(frame)) is not None:
            self.pending = error
            loop.call_soon_threadsafe(self._raise, error)
        else:
            self.pending = None
            raise error

    def _raise(self, error: BaseException) -> None:
        if self.pending is error:
            self.pending = None
            raise error


def _busy_loop(frame: types.FrameType | None) -> asyncio.AbstractEventLoop | None:
    """The running loop, if the interrupted code is the loop's own."""
    name = frame.f_globals.get("__name__") if frame is not None else None
    if type(name) is not str:  # a cell may set __name__ to anything
        return None
    if name.partition(".")[0] not in _LOOP_MODULES and name != event_loop.__name__:
        return None
    loop = event_loop.running_loop()
    return None if loop is None or loop.is_closed() else loop
