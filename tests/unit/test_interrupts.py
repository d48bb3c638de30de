"""An interrupt at each line of what an event loop does by itself, one after the other: the next cell has a loop."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from quire.worker.execution import event_loop
from quire.worker.execution.interrupts import Interrupts
from tests.support.relay_server import DEADLINE, Pair, echo

_TRACED = ("asyncio", "selectors", "quire")


class At:
    """Interrupts at the so manieth line of those modules; `reached` says which that was."""

    def __init__(self, line: int, interrupts: Interrupts) -> None:
        self.reached = ""
        self._left = line
        self._interrupts = interrupts

    def __enter__(self) -> At:
        sys.settrace(self._called)
        return self

    def __exit__(self, *raised: object) -> None:
        sys.settrace(None)

    def _called(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        return self._at if frame.f_globals.get("__name__", "").partition(".")[0] in _TRACED else None

    def _at(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        if event == "line" and not self.reached:
            self._left -= 1
            if self._left == 0:
                self.reached = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
                self._interrupts.deliver(KeyboardInterrupt(), frame)
        return self._at


def test_interrupt_anywhere_leaves_capability_calls_working(pair: Pair) -> None:
    pair.serve(echo)
    lines = 0
    while True:
        lines += 1
        with At(lines, pair.interrupts) as at:
            came = interrupted(pair.interrupts, lambda given: pair.client.call("tool", given=given), {"at": 1})
        if not at.reached:
            break
        assert came, at.reached
        assert pair.client.call("tool", given={"at": lines}) == {"back": {"at": lines}}, at.reached
        assert not pair.client._waiting and not pair.interrupts.held, at.reached
    assert lines > 100


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a coroutine that was interrupted before it began
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("offered", [False, True])
def test_interrupt_anywhere_leaves_the_event_loop_working(pair: Pair, offered: bool) -> None:
    pair.serve(echo)
    lines = 0

    async def call(given: int) -> Any:
        async with asyncio.timeout(DEADLINE):
            return await pair.client.call_async("tool", given={"at": given})

    event_loop.wait_for(call(0))  # the loop is there
    while True:
        lines += 1
        if offered:
            event_loop.offer()
        with At(lines, pair.interrupts) as at:
            came = interrupted(pair.interrupts, event_loop.wait_for, call(lines))
        event_loop.withdraw()
        if not at.reached:
            break
        assert came, at.reached
        assert event_loop.wait_for(call(-lines)) == {"back": {"at": -lines}}, at.reached
        assert not asyncio.all_tasks(event_loop.existing()), at.reached
    assert lines > 300
    event_loop.existing().close()


def interrupted(interrupts: Interrupts, run: Callable[[Any], Any], cell: Any) -> bool:
    try:
        run(cell)
        interrupts.release()  # as at a cell's end
    except KeyboardInterrupt:
        return True
    return False


async def test_unusual_module_name_does_not_delay_an_interrupt(pair: Pair) -> None:
    for name in (None, 5, "asyncios", "__main__"):
        frame = types.SimpleNamespace(f_globals={"__name__": name})
        with pytest.raises(KeyboardInterrupt):
            pair.interrupts.deliver(KeyboardInterrupt(), frame)  # type: ignore[arg-type]


async def test_second_interrupt_is_raised_in_a_blocked_loop(pair: Pair) -> None:
    frame = types.SimpleNamespace(f_globals=vars(asyncio))
    pair.interrupts.deliver(KeyboardInterrupt(), frame)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        pair.interrupts.deliver(KeyboardInterrupt(), frame)  # type: ignore[arg-type]
    await asyncio.sleep(0)  # and not by the first any more
