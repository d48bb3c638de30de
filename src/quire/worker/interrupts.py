"""When an interrupt may come: never in the middle of a frame, which would end the kernel."""

from __future__ import annotations

import threading


class Interrupts:
    """One for the process. While the main thread holds it an interrupt waits, and comes when it is let go."""

    def __init__(self) -> None:
        self.held = False  # by the main thread
        self.came: BaseException | None = None  # meanwhile
        self._main = threading.get_ident()

    def hold(self) -> bool:
        """Whether it is the caller's now, who must let it go; other threads are never interrupted."""
        if self.held or threading.get_ident() != self._main:
            return False
        self.held = True
        return True

    def let_go(self) -> None:
        self.held = False
        if self.came is not None:
            came, self.came = self.came, None
            raise came

    def come(self, error: BaseException) -> None:
        """In a signal's handler: raised now, or when it is let go."""
        if not self.held:
            raise error
        self.came = error
