"""A program that is told to stop ends, logs what a slow shutdown waits for, and is cut short if it hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

DEADLINE_S = 60


class Program:
    """A process that runs `main` under a Shutdown with short limits. It prints `ready` when it can be told to stop."""

    def __init__(self, main: str, *, slow_after_s: float = 0.1, give_up_after_s: float = 60) -> None:
        source = f"""
import asyncio, logging, sys, threading, time
from quire import shutdown
shutdown.SLOW_AFTER_S, shutdown.GIVE_UP_AFTER_S = {slow_after_s}, {give_up_after_s}
logging.basicConfig(level="INFO", stream=sys.stderr)
stopping = shutdown.Shutdown(lambda: print("begun", flush=True))
{textwrap.dedent(main)}
print("ready", flush=True)
sys.exit(stopping.run(main))
"""
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", source], stdout=pipe, stderr=pipe, text=True)
        assert self.process.stdout is not None
        while self.process.stdout.readline() not in ("started\n", ""):
            pass

    def ended(self, *signals: int) -> tuple[int, str, str]:
        """Its exit code, its output and its log, after these signals."""
        for number in signals:
            self.process.send_signal(number)
        assert self.process.stdout is not None and self.process.stderr is not None
        with self.process:
            return self.process.wait(DEADLINE_S), self.process.stdout.read(), self.process.stderr.read()


WAITS = """
async def main():
    print("started", flush=True)
    await asyncio.Event().wait()
"""
HANGS_WHILE_CLOSING = """
async def close_connections():
    await asyncio.Event().wait()

async def main():
    print("started", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.shield(close_connections())
"""
BLOCKS_THE_LOOP_WHILE_CLOSING = """
def block_for_ever():
    threading.Event().wait()

async def main():
    print("started", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        block_for_ever()
"""
CLOSES_SLOWLY = """
class Logged(logging.Handler):
    seen = False
    def emit(self, record):
        Logged.seen = True

logging.getLogger().addHandler(Logged())

async def main():
    print("started", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        while not Logged.seen:
            await asyncio.sleep(0.01)
        print("closed", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_program(number: int) -> None:
    code, output, log = Program(WAITS, slow_after_s=DEADLINE_S).ended(number)
    assert (code, output, log) == (128 + number, "begun\n", "")


def test_result_is_returned_without_a_signal() -> None:
    main = "async def main():\n    print('started', flush=True)\n    return 3\n"
    code, output, log = Program(main, slow_after_s=DEADLINE_S).ended()
    assert (code, output, log) == (3, "begun\n", "")


def test_slow_shutdown_logs_what_it_waits_for() -> None:
    code, output, log = Program(CLOSES_SLOWLY).ended(signal.SIGTERM)
    assert (code, output) == (128 + signal.SIGTERM, "begun\nclosed\n")
    assert "Shutdown takes long. It waits for:" in log and "main:" in log and "sleep" in log


def test_second_sigterm_does_not_disturb_closing() -> None:
    code, output, _ = Program(CLOSES_SLOWLY).ended(signal.SIGTERM, signal.SIGTERM)
    assert (code, output) == (128 + signal.SIGTERM, "begun\nclosed\n")


@pytest.mark.parametrize(
    ("program", "cause"),
    [(HANGS_WHILE_CLOSING, "close_connections"), (BLOCKS_THE_LOOP_WHILE_CLOSING, "block_for_ever")],
)
def test_shutdown_that_hangs_is_cut_short_and_logged(program: str, cause: str) -> None:
    code, _, log = Program(program, give_up_after_s=0.3).ended(signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert "was cut short" in log and cause in log
