"""Waiting for a killed process ends, and the log says what keeps it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from quire.runtimes.python import kill_wait


async def test_process_that_is_gone_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    gone = asyncio.Event()
    gone.set()
    assert await kill_wait.wait_killed(gone.wait(), 1, "A process")
    assert caplog.text == ""


async def test_process_that_stays_is_given_up_and_its_state_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_wait, "_KILLED_S", 0.05)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert not await kill_wait.wait_killed(asyncio.Event().wait(), process.pid, "A kernel's process")
        assert f"A kernel's process (process {process.pid}) is not gone" in caplog.text and "state " in caplog.text


async def test_process_without_a_trace_is_given_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_wait, "_KILLED_S", 0.05)
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert not await kill_wait.wait_killed(asyncio.Event().wait(), process.pid, "A kernel's process")
    assert "no such process" in caplog.text
