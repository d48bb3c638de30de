"""An event loop without sockets: nothing comes from outside, so waiting is sleeping until the next timer."""

from __future__ import annotations

import asyncio
import asyncio.base_events
import asyncio.unix_events
import time
from collections.abc import Callable
from typing import Any


class Deadlock(RuntimeError):
    """Every task waits, and nothing is left that could wake one."""


Deadlock.__module__ = "builtins"  # in tracebacks, without where it is from


def install() -> None:
    """Be the loop of asyncio.run() and of everything else that makes one."""
    asyncio.unix_events._DefaultEventLoopPolicy._loop_factory = EventLoop  # type: ignore[attr-defined]
    for module in (asyncio, asyncio.unix_events):
        module.SelectorEventLoop = module.EventLoop = EventLoop  # type: ignore[attr-defined]


class EventLoop(asyncio.base_events.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._selector = _Sleep()

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass  # it is always awake: there are no threads

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """At once, and here: there are no threads to wait for."""
        if executor is not None:
            return super().run_in_executor(executor, func, *args)
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class _Sleep:
    """In place of a selector."""

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Deadlock("Every task waits for another, and nothing can come from outside: this would never end.")
        if timeout > 0:
            time.sleep(timeout)
        return []
