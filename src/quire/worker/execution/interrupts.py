"""When an interrupt may come: neither in the middle of a frame, which would end the kernel, nor of an event loop's
own work, which would leave the loop torn for every cell after."""

from __future__ import annotations

import asyncio
import threading
import types

from quire.worker.execution import event_loop

_LOOP_MODULES = ("asyncio", "selectors")


class Interrupts:
    """One for the process. While the main thread holds it an interrupt waits, and comes when it is let go; one that
    came while an event loop was at its own work comes at the loop's next turn."""

    def __init__(self) -> None:
        self.held = False  # by the main thread
        self.pending: BaseException | None = None  # and waits
        self._main = threading.get_ident()

    def hold(self) -> bool:
        """Whether it is the caller's now, who must let it go; other threads are never interrupted."""
        if self.held or threading.get_ident() != self._main:
            return False
        self.held = True
        return True

    def release(self) -> None:
        self.held = False
        if self.pending is not None:
            self._raise(self.pending)

    def deliver(self, error: BaseException, frame: types.FrameType | None = None) -> None:
        """In a signal's handler, with the frame it came in: raised now or later. Where one waits for a loop that does
        not come to its turn, the second is raised at once."""
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
    """The running loop, where the code that was reached is the loop's own."""
    name = frame.f_globals.get("__name__") if frame is not None else None
    if type(name) is not str:  # a cell may have called itself anything
        return None
    if name.partition(".")[0] not in _LOOP_MODULES and name != event_loop.__name__:
        return None
    loop = event_loop.running_loop()
    return None if loop is None or loop.is_closed() else loop
