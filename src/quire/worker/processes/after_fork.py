"""Repair a woken checkpoint: threads and child processes are gone in it, and descriptors of event loops are closed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import signal
import socket
import sys
import threading
from typing import Any

from quire.worker.execution import event_loop


def restore_after_fork(loop: Any) -> None:
    """Restart pools at their next task, and make the event loops work."""
    for pool in process_pools():
        with contextlib.suppress(Exception):
            _renew_process_pool(pool)
    _forget_children()
    with contextlib.suppress(AttributeError):
        _forget_loky()
    for pool in _thread_pools():
        with contextlib.suppress(AttributeError):
            _renew_thread_pool(pool)
    if loop is not None and not loop.is_closed():
        asyncio.set_event_loop(loop)  # newer Pythons forget it in a fork
    for item in {id(item): item for item in (loop, event_loop.existing())}.values():
        with contextlib.suppress(AttributeError):  # no loop, or a closed one
            _renew_loop(item)


def current_loop() -> Any:
    """The main thread's event loop, if there is one; does not create it."""
    events = sys.modules.get("asyncio.events")
    policy = getattr(events, "_event_loop_policy", None)
    return getattr(getattr(policy, "_local", None), "_loop", None)


def idle_pool_threads() -> set[Any]:
    """Idle threads of thread pools, and the threads that manage process pools."""
    idle: set[Any] = set()
    for pool in _thread_pools():
        with contextlib.suppress(AttributeError):
            if pool._work_queue.empty() and pool._idle_semaphore._value >= len(pool._threads):
                idle |= pool._threads
    for pool in process_pools():
        for name in ("_worker_handler", "_task_handler", "_result_handler", "_executor_manager_thread"):
            idle.add(getattr(pool, name, None))
        idle.add(getattr(getattr(pool, "_call_queue", None), "_thread", None))
    return idle


def pool_children() -> set[int | None]:
    """Processes of pools, which are restarted in a copy."""
    found: set[int | None] = set()
    for pool in process_pools():
        with contextlib.suppress(AttributeError):
            found |= {process.pid for process in pool._pool}
        with contextlib.suppress(AttributeError, TypeError):
            found |= set(pool._processes)
    tracker = sys.modules.get("multiprocessing.resource_tracker")
    found.add(getattr(getattr(tracker, "_resource_tracker", None), "_pid", None))
    return found


def process_pools() -> list[Any]:
    """Running process pools. multiprocessing's are found through their finalizers, executors through their threads."""
    found: list[Any] = []
    util, pools = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.pool")
    if util is not None and pools is not None:
        for finalizer in list(util._finalizer_registry.values()):
            pool = finalizer._weakref() if getattr(finalizer, "_weakref", None) is not None else None
            if isinstance(pool, pools.Pool) and getattr(pool, "_state", "") == "RUN":
                found.append(pool)
    executors = sys.modules.get("concurrent.futures.process")
    for thread in list(executors._threads_wakeups) if executors is not None else ():
        pool = getattr(thread, "executor_reference", lambda: None)()
        if pool is not None:
            found.append(pool)
    return found


def _thread_pools() -> list[Any]:
    """ThreadPoolExecutors with threads, found through the arguments of the threads."""
    threads = sys.modules.get("concurrent.futures.thread")
    found: dict[int, Any] = {}
    for thread in list(threads._threads_queues) if threads is not None else ():
        with contextlib.suppress(AttributeError, IndexError, TypeError):
            pool = thread._args[0]()
            if pool is not None:
                found[id(pool)] = pool
    return list(found.values())


def _renew_thread_pool(pool: Any) -> None:
    """Forget the lost threads, so that the next task starts one, and start the queued tasks."""
    thread_queues = sys.modules["concurrent.futures.thread"]._threads_queues
    for thread in list(pool._threads):
        thread_queues.pop(thread, None)
    pool._threads.clear()
    pool._shutdown_lock = threading.Lock()
    pool._idle_semaphore = threading.Semaphore(0)
    waiting, pool._work_queue = pool._work_queue, queue.SimpleQueue()
    with contextlib.suppress(queue.Empty):
        while True:
            task = waiting.get_nowait()
            if task is not None:
                pool._work_queue.put(task)
                pool._adjust_thread_count()


def _renew_process_pool(pool: Any) -> None:
    """Initialize the pool again, with the same arguments and new processes."""
    if hasattr(pool, "_maxtasksperchild"):
        pool.__init__(pool._processes, pool._initializer, pool._initargs, pool._maxtasksperchild, pool._ctx)
    else:
        pool.__init__(pool._max_workers, pool._mp_context, pool._initializer, pool._initargs)


def _forget_children() -> None:
    """Forget the original's child processes, which multiprocessing would end or wait for."""
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process._children = {child for child in process._children if child._parent_pid == os.getpid()}
    util: Any = sys.modules.get("multiprocessing.util")
    for key, finalizer in list(util._finalizer_registry.items()) if util is not None else ():
        if finalizer._pid != os.getpid():
            util._finalizer_registry.pop(key, None)
    tracker: Any = sys.modules.get("multiprocessing.resource_tracker")
    if tracker is not None:
        tracker._resource_tracker._fd = tracker._resource_tracker._pid = None


def _forget_loky() -> None:
    """Have joblib create its pool again at the next use."""
    for package in ("joblib.externals.loky", "loky"):
        reusable: Any = sys.modules.get(f"{package}.reusable_executor")
        tracker: Any = sys.modules.get(f"{package}.backend.resource_tracker")
        if reusable is not None:
            reusable._executor = None
        if tracker is not None:
            tracker._resource_tracker._fd = tracker._resource_tracker._pid = None


def _renew_loop(loop: Any) -> None:
    """Create new kernel objects under the loop's descriptors, which were closed in the copy."""
    selector = loop._selector
    epoll = getattr(selector, "_selector", None)
    if isinstance(epoll, select.epoll):
        with select.epoll() as new:
            os.dup2(new.fileno(), epoll.fileno(), inheritable=False)
    read_end, write_end = socket.socketpair()
    with read_end, write_end:
        os.dup2(read_end.fileno(), loop._ssock.fileno(), inheritable=False)
        os.dup2(write_end.fileno(), loop._csock.fileno(), inheritable=False)
    loop._ssock.setblocking(False)
    loop._csock.setblocking(False)
    if isinstance(epoll, select.epoll):
        for key in selector.get_map().values():
            with contextlib.suppress(OSError):  # the file it listened to is closed
                epoll.register(key.fd, select.EPOLLIN * (key.events & 1) | select.EPOLLOUT * (key.events >> 1 & 1))
    if loop._signal_handlers:
        signal.set_wakeup_fd(loop._csock.fileno(), warn_on_full_buffer=False)
