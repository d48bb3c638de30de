"""Worker threads of anyio are told to end; threads of another shape are left alone."""

from __future__ import annotations

import asyncio
import queue
import threading

import anyio.to_thread
import pytest

from quire.frontends.jupyter_extension import worker_threads
from tests.support.waiting import wait_until


async def test_worker_thread_whose_task_is_pending_is_ended() -> None:
    found: list[threading.Thread] = []
    task = asyncio.create_task(anyio.to_thread.run_sync(lambda: found.append(threading.current_thread())))
    await task
    assert type(found[0]).__module__.startswith("anyio.")
    worker_threads.stop(found[0])
    wait_until(lambda: not found[0].is_alive(), "the thread ended")


@pytest.mark.parametrize("jobs", [None, [], "queue"])
def test_thread_of_another_shape_is_left_alone(jobs: object) -> None:
    thread = threading.Thread()
    thread.queue = jobs  # type: ignore[attr-defined]
    worker_threads.stop(thread)


def test_full_queue_is_left_alone() -> None:
    thread = threading.Thread()
    thread.queue = queue.Queue(1)  # type: ignore[attr-defined]
    thread.queue.put(1)  # type: ignore[attr-defined]
    worker_threads.stop(thread)
    assert thread.queue.get_nowait() == 1  # type: ignore[attr-defined]
