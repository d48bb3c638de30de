"""The server's side of a supervisor: what it makes of answers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from quire.core.errors import OperationFailed
from quire.runtimes.python import supervisor
from quire.runtimes.python.supervisor import SupervisorClient
from quire.wire import packets

pytestmark = pytest.mark.anyio


class Said:
    """A supervisor's process in name only: the test says what it says."""

    def __init__(self) -> None:
        ours, self._theirs = packets.socket_pair()
        ours.setblocking(False)
        self._stands_for = subprocess.Popen(["sleep", "1000"])
        self.supervisor = SupervisorClient(ours, os.pidfd_open(self._stands_for.pid))

    async def launch(self, do: str, answer: str) -> int:
        """Give that order; it is answered with a process that is gone and buried by then."""
        process = subprocess.Popen([sys.executable, "-c", ""])
        pidfd = os.pidfd_open(process.pid)
        process.wait()
        packets.send(self._theirs, {answer: process.pid}, [pidfd])
        os.close(pidfd)
        pid, handed = await self.supervisor.launch({"do": do}, [])
        os.close(handed)
        return pid

    async def close(self) -> None:
        self._stands_for.kill()
        self._stands_for.wait()
        await self.supervisor.close()
        self._theirs.close()


@pytest.fixture
async def said() -> AsyncIterator[Said]:
    made = Said()
    yield made
    await made.close()


async def test_cancelled_launch_closes_its_descriptor(said: Said) -> None:
    """Otherwise the server's end waits for ever for the task that makes spare kernels."""
    handed, ours = os.pipe()
    launching = asyncio.ensure_future(said.supervisor.launch({"do": "start"}, []))
    await asyncio.sleep(0)
    assert said.supervisor._answer is not None
    said.supervisor._answer.set_result((0, handed))
    launching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launching
    with pytest.raises(BrokenPipeError):
        os.write(ours, b"x")
    os.close(ours)


async def test_writer_that_ended_before_its_announcement_succeeds(said: Said) -> None:
    assert await said.launch("write", "writing") == 0


async def test_worker_or_branch_that_ended_at_once_fails(said: Said) -> None:
    for do, answer in (("start", "live"), ("branch", "branched")):
        with pytest.raises(OperationFailed, match="ended at once"):
            await said.launch(do, answer)


async def test_slow_supervisor_with_branches_is_not_killed(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the first process of a namespace: its end would end the branches."""
    killed: list[bool] = []
    monkeypatch.setattr(supervisor, "_CLOSE_TIMEOUT_S", 0.0)
    monkeypatch.setattr(SupervisorClient, "_kill", lambda self: killed.append(True))
    said.supervisor.adopt(1, said.supervisor)
    closing = asyncio.ensure_future(said.supervisor.close())
    for _ in range(10):
        await asyncio.sleep(0)  # it would be killed now
    packets.send(said._theirs, {"ended": True})
    await closing
    with pytest.raises(OperationFailed, match="cannot be reached"):  # a snapshot that was due
        await said.supervisor.launch({"do": "write"}, [])
    assert not killed
