"""Copies that are forked while an interrupt is on its way, each case in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

SETUP = """
import os, signal
from quire.worker.processes.fork_interrupts import ForkInterrupts

sent = 0
copies = ForkInterrupts(lambda: sent)

def handle(number, frame):
    if copies.receive():
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, handle)
copies.begin_run()

def slow():
    for _ in range(1000):
        pass

def fork():
    parent = os.getpid()
    try:
        pid = os.fork()
        for _ in range(1000):
            pass
    except KeyboardInterrupt:
        os._exit(7 if os.getpid() != parent else 1)
    if pid == 0:
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


@pytest.mark.parametrize(
    ("code", "status"),
    [
        pytest.param("", 0, id="none was sent"),
        pytest.param("sent = 1", 7, id="one is on its way"),
        pytest.param("sent = 1\nos.register_at_fork(after_in_child=slow)", 7, id="while a callback of a module runs"),
        pytest.param("sent = 1; copies.begin_run()", 0, id="it was for the run before"),
        pytest.param("sent = 1; os.setpgid(0, 0)", 0, id="the process left the group"),
        pytest.param(
            "sent = 1\ntry: os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt: pass",
            0,
            id="the process handled it",
        ),
    ],
)
def test_new_child_gets_the_parents_pending_interrupt(code: str, status: int) -> None:
    program = f"{SETUP}\n{code}\nassert fork() == {status}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 0, ended.stderr
