"""What a woken copy must put right: threads are gone in it, and what its event loops listened to is closed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from typing import Any


def after_waking() -> None:
    for pool in _pools():
        _renew_pool(pool)
    with contextlib.suppress(RuntimeError):
        renew_loop(asyncio.get_event_loop_policy()._local._loop)  # type: ignore[attr-defined]


def idle_pool_threads() -> set[Any]:
    """Worker threads of thread pools that have nothing to do."""
    idle: set[Any] = set()
    for pool in _pools():
        with contextlib.suppress(AttributeError):
            if pool._work_queue.empty() and pool._idle_semaphore._value >= len(pool._threads):
                idle |= pool._threads
    return idle


def _pools() -> list[Any]:
    """Every ThreadPoolExecutor with threads, found through the threads' own arguments."""
    threads = sys.modules.get("concurrent.futures.thread")
    if threads is None:
        return []
    found: dict[int, Any] = {}
    for thread in list(threads._threads_queues):
        with contextlib.suppress(AttributeError, IndexError, TypeError):
            pool = thread._args[0]()
            if pool is not None:
                found[id(pool)] = pool
    return list(found.values())


def _renew_pool(pool: Any) -> None:
    """Its threads did not come along: none are counted, so that the next task starts one."""
    pool._threads = set()
    pool._idle_semaphore = threading.Semaphore(0)
    pool._shutdown_lock = threading.Lock()


def renew_loop(loop: Any) -> None:
    pass
