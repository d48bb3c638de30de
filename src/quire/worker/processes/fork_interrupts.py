"""Interrupt child processes that a cell forks while an interrupt is pending.

A child that exists when the server sends SIGINT to the process group gets the signal. A child forked later, by a
process that has not yet handled the signal, does not: pending signals are not inherited, and Python forgets those it
has noted. So the server counts the interrupts it sends, and a new child compares that number with the interrupts its
parent had handled.

Python discards exceptions raised in fork callbacks, such as the callback of `random`. So callbacks registered later run
inside ours, where no interrupt is raised. This is why `os.register_at_fork` is replaced.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable
from functools import partial

_python = ctypes.PyDLL(None)  # calls that keep the GIL, so that no signal handler runs after them

# bound before any cell runs, since a cell may patch os
_kill, _getpid, _getpgrp = os.kill, os.getpid, os.getpgrp


class ForkInterrupts:
    """One per process; create it after all other fork callbacks are registered."""

    def __init__(self, count_sent: Callable[[], int]) -> None:
        self._count_sent = count_sent
        self._handled = 0  # of the interrupts sent
        self._group = _getpgrp()  # which the server interrupts
        self._forking: list[bool] = []  # not empty during a fork
        self._before: list[Callable[[], object]] = []  # registered later; the last one first
        self._after_in_parent: list[Callable[[], object]] = []
        self._after_in_child: list[Callable[[], object]] = []
        self._register()
        os.register_at_fork = self._register_later

    def begin_run(self) -> None:
        self._handled, self._group = self._count_sent(), _getpgrp()

    def receive(self) -> bool:
        """Called by SIGINT's handler. False during a fork, where an exception is lost; the signal is sent again."""
        if self._forking:
            _kill(_getpid(), signal.SIGINT)
            return False
        self._handled = self._count_sent()
        return True

    def _register(self) -> None:
        """Block SIGINT during a fork. The calls that block and unblock it are not Python code, in which a handler could
        run."""
        signals = ctypes.create_string_buffer(128)  # sigset_t
        _python.sigemptyset(signals)
        _python.sigaddset(signals, signal.SIGINT)
        unblock = partial(_python.pthread_sigmask, signal.SIG_UNBLOCK, signals, None)
        register = os.register_at_fork
        register(
            before=partial(_call_all, self._before),
            after_in_parent=partial(_call_all, self._after_in_parent),
            after_in_child=partial(_call_all, self._after_in_child),
        )
        register(
            before=partial(self._forking.append, True),
            after_in_parent=self._forking.clear,
            after_in_child=self._forking.clear,
        )
        register(after_in_child=self._interrupt_new_copy)
        register(
            before=partial(_python.pthread_sigmask, signal.SIG_BLOCK, signals, None),
            after_in_parent=unblock,
            after_in_child=unblock,
        )

    def _register_later(
        self,
        *,
        before: Callable[[], object] | None = None,
        after_in_child: Callable[[], object] | None = None,
        after_in_parent: Callable[[], object] | None = None,
    ) -> None:
        """Replaces `os.register_at_fork`."""
        callbacks = [callback for callback in (before, after_in_child, after_in_parent) if callback is not None]
        if not callbacks or not all(map(callable, callbacks)):
            raise TypeError("register_at_fork() takes callables as before, after_in_child or after_in_parent")
        if before is not None:
            self._before.insert(0, before)
        if after_in_child is not None:
            self._after_in_child.append(after_in_child)
        if after_in_parent is not None:
            self._after_in_parent.append(after_in_parent)

    def _interrupt_new_copy(self) -> None:
        if self._count_sent() > self._handled and _getpgrp() == self._group:
            _kill(_getpid(), signal.SIGINT)


def _call_all(callbacks: Iterable[Callable[[], object]]) -> None:
    for callback in callbacks:
        try:
            callback()
        except BaseException:  # as in Python: report it and run the others
            sys.excepthook(*sys.exc_info())
