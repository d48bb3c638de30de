"""Locks, queues, threads, pools, futures and context variables, as far as their state can be saved."""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import contextlib
import contextvars
import queue
import sys
import threading
from typing import Any

from quire.worker.execution import event_loop
from quire.worker.snapshot import tombstones
from quire.worker.snapshot.reducers import (
    Context,
    NotSerializable,
    rebuilds,
    reduce_itself,
    reduces,
    reduces_named,
    refuse_with,
)

_Lock, _RLock = threading.Lock, threading.RLock
_LOCK, _RLOCK = type(threading.Lock()), type(threading.RLock())


@reduces(_LOCK)
def reduce_lock(context: Context, lock: Any) -> Any:
    return (make_lock, (lock.locked(),))


@rebuilds
def make_lock(held: bool) -> Any:
    lock = _Lock()
    if held:
        lock.acquire()
    return lock


@reduces(_RLOCK)
def reduce_rlock(context: Context, lock: Any) -> Any:
    if repr(lock).startswith("<unlocked"):
        return (make_rlock, (0,))
    if not context.on_main(lock._is_owned):
        raise NotSerializable("a lock", "another thread holds it")
    return (make_rlock, (context.on_main(lambda: _times_held(lock)),))


def _times_held(lock: Any) -> int:
    state = lock._release_save()
    lock._acquire_restore(state)
    return int(state[0])


@rebuilds
def make_rlock(held: int) -> Any:
    lock = _RLock()
    for _ in range(held):
        lock.acquire()
    return lock


@reduces(threading.Condition, derived=True)
def reduce_condition(context: Context, condition: Any) -> Any:
    reduced = reduce_itself(context, condition)
    state = {key: value for key, value in condition.__dict__.items() if key != "_waiters"}
    state["_waiters"] = type(condition._waiters)()  # waiting threads are gone
    return (*reduced[:2], state, *reduced[3:])


@reduces(threading.Barrier, derived=True)
def reduce_barrier(context: Context, barrier: threading.Barrier) -> Any:
    if barrier.n_waiting:
        raise NotSerializable("a barrier", "threads wait at it")
    return reduce_itself(context, barrier)


@reduces(threading.local, derived=True)
def reduce_local(context: Context, local: Any) -> Any:
    return (make_local, (type(local),), context.on_main(lambda: dict(local.__dict__)), None, None, fill_local)


@rebuilds
def make_local(kind: Any) -> Any:
    return kind.__new__(kind)


@rebuilds
def fill_local(local: Any, values: dict[str, Any]) -> None:
    local.__dict__.update(values)


@reduces(queue.SimpleQueue)
def reduce_simple_queue(context: Context, waiting: Any) -> Any:
    items = [waiting.get_nowait() for _ in range(waiting.qsize())]
    for item in items:
        waiting.put(item)
    return (make_simple_queue, (), items, None, None, fill_simple_queue)


@rebuilds
def make_simple_queue() -> Any:
    return queue.SimpleQueue()


@rebuilds
def fill_simple_queue(waiting: Any, items: list[Any]) -> None:
    for item in items:
        waiting.put(item)


# Threads

_OF_THREAD = set(vars(threading.Thread())) | {"_target", "_args", "_kwargs", "_tstate_lock", "_is_stopped", "_handle"}


@reduces(threading.Thread, derived=True)
def reduce_thread(context: Context, thread: threading.Thread) -> Any:
    if thread is threading.main_thread():
        return (threading.main_thread, ())
    if _runs(thread) or isinstance(thread, threading._DummyThread):
        raise NotSerializable(f"thread {thread.name}", "a running thread cannot be saved")
    run = {name: getattr(thread, f"_{name}", None) for name in ("target", "args", "kwargs")}
    words = {**run, "name": thread.name, "daemon": thread.daemon}
    own = {key: value for key, value in thread.__dict__.items() if key not in _OF_THREAD}
    return (make_thread, (type(thread),), (words, own, thread.ident), None, None, fill_thread)


def _runs(thread: threading.Thread) -> bool:
    """Whether it runs here or in the original process; after a fork Python reports other threads as ended."""
    return thread.is_alive() or id(thread) in _Original.threads


class _Original:
    """Threads of the process that this one was forked from."""

    threads: frozenset[int] = frozenset()


def note_threads() -> None:
    """Remember the running threads before a fork."""
    _Original.threads = frozenset(id(thread) for thread in threading.enumerate())


@rebuilds
def make_thread(kind: Any) -> Any:
    return kind if tombstones.is_tombstone(kind) else object.__new__(kind)


@rebuilds
def fill_thread(thread: Any, state: tuple[dict[str, Any], dict[str, Any], int | None]) -> None:
    words, own, ident = state
    threading.Thread.__init__(thread, **{key: value for key, value in words.items() if value is not None})
    thread.__dict__.update(own)
    if ident is not None:  # it ran and ended
        thread._ident = ident
        thread._started.set()
        if sys.version_info >= (3, 13):
            thread._handle = _thread._make_thread_handle(ident)
            thread._handle._set_done()
        else:
            thread._is_stopped, thread._tstate_lock = True, None
        for name in ("_target", "_args", "_kwargs"):
            thread.__dict__.pop(name, None)


# Pools and futures


@reduces(concurrent.futures.ThreadPoolExecutor)
def reduce_threads(context: Context, pool: Any) -> Any:
    hidden = getattr(pool, "_create_worker_context", None)  # where Python 3.14 has it
    first = _captured(hidden) if hidden is not None else {}
    words = {
        "max_workers": pool._max_workers,
        "thread_name_prefix": pool._thread_name_prefix,
        "initializer": first.get("initializer", getattr(pool, "_initializer", None)),
        "initargs": first.get("initargs", getattr(pool, "_initargs", ())),
    }
    return (make_pool, (type(pool), words, pool._shutdown))


def _captured(function: Any) -> dict[str, Any]:
    cells = function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)}


@reduces_named("concurrent.futures.process.ProcessPoolExecutor")
def reduce_processes(context: Context, pool: Any) -> Any:
    words = {
        "max_workers": pool._max_workers,
        "initializer": pool._initializer,
        "initargs": pool._initargs,
        "max_tasks_per_child": getattr(pool, "_max_tasks_per_child", None),
    }
    method = pool._mp_context.get_start_method() if pool._mp_context is not None else None
    return (make_pool, (type(pool), words, pool._shutdown_thread, method))


@rebuilds
def make_pool(kind: Any, words: dict[str, Any], closed: bool, method: str | None = None) -> Any:
    if method is not None:
        import multiprocessing

        words = {**words, "mp_context": multiprocessing.get_context(method)}
        if method == "fork":
            words.pop("max_tasks_per_child", None)
    pool = kind(**words)
    if closed:
        pool.shutdown()
    return pool


@reduces_named("multiprocessing.pool.Pool", "multiprocessing.pool.ThreadPool")
def reduce_workers(context: Context, pool: Any) -> Any:
    words = {"processes": pool._processes, "initializer": pool._initializer, "initargs": pool._initargs}
    if type(pool).__name__ == "Pool":
        words["maxtasksperchild"] = pool._maxtasksperchild
    return (make_workers, (type(pool), words, pool._state))


@rebuilds
def make_workers(kind: Any, words: dict[str, Any], state: str) -> Any:
    """A pool that starts its processes on first use, so that loading starts none."""
    content = {"__getattribute__": _start_first, "__del__": lambda self: None, "_words": words, "__slots__": ()}
    pool: Any = object.__new__(type(kind.__name__, (kind,), content))
    if state != "RUN":
        pool.close()
    return pool


def _start_first(pool: Any, name: str) -> Any:
    lazy = object.__getattribute__(pool, "__class__")
    if name.startswith("__") and name not in ("__enter__", "__exit__"):
        return object.__getattribute__(pool, name)
    kind = lazy.__mro__[1]
    pool.__class__ = kind
    kind.__init__(pool, **lazy.__dict__["_words"])
    return getattr(pool, name)


@reduces(concurrent.futures.Future)
def reduce_future(context: Context, future: concurrent.futures.Future[Any]) -> Any:
    if not future.done():
        raise NotSerializable("a future", "it has no result yet, and who computes it is gone")
    if future.cancelled():
        return (make_future, (), ("cancelled", None), None, None, fill_future)
    error = future.exception()
    outcome = ("result", future.result()) if error is None else ("exception", error)
    return (make_future, (), outcome, None, None, fill_future)


@rebuilds
def make_future() -> Any:
    return concurrent.futures.Future()


@rebuilds
def fill_future(future: Any, outcome: tuple[str, Any]) -> None:
    how, value = outcome
    if how == "cancelled":
        future.cancel()
        future.set_running_or_notify_cancel()
    else:
        getattr(future, f"set_{how}")(value)


# asyncio: objects of a loop are bound to the next loop


@reduces(asyncio.Lock, asyncio.Event, asyncio.Condition, asyncio.Semaphore, asyncio.BoundedSemaphore)
@reduces(asyncio.Queue, asyncio.LifoQueue, asyncio.PriorityQueue, asyncio.Barrier)
def reduce_async(context: Context, thing: Any) -> Any:
    reduced = reduce_itself(context, thing)
    state = {key: value for key, value in thing.__dict__.items() if key not in ("_loop", "_waiters")}
    for key in ("_waiters", "_getters", "_putters"):  # waiting tasks are gone
        if key in thing.__dict__:
            state[key] = type(thing.__dict__[key])() if thing.__dict__[key] is not None else None
    return (*reduced[:2], state, *reduced[3:])


@reduces(asyncio.SelectorEventLoop, derived=True)
def reduce_loop(context: Context, loop: Any) -> Any:
    return (make_loop, (loop is event_loop.existing(), loop.is_closed()))


@rebuilds
def make_loop(current: bool, closed: bool) -> Any:
    if current and not closed:
        return event_loop.current()
    loop = asyncio.new_event_loop()
    if closed:
        loop.close()
    return loop


reduces(asyncio.Task, asyncio.Future, derived=True)(refuse_with("a task", "the loop that runs it is gone"))


# Context variables


@reduces(contextvars.ContextVar)
def reduce_variable(context: Context, variable: contextvars.ContextVar[Any]) -> Any:
    default: tuple[Any, ...] = ()
    with contextlib.suppress(LookupError):
        default = (contextvars.Context().run(variable.get),)
    value = (variable.get(),) if variable in contextvars.copy_context() else ()
    return (make_context_variable, (variable.name, *default), value, None, None, fill_context_variable)


@rebuilds
def make_context_variable(name: str, *default: Any) -> Any:
    return contextvars.ContextVar(name, default=default[0]) if default else contextvars.ContextVar(name)


@rebuilds
def fill_context_variable(variable: Any, value: tuple[Any, ...]) -> None:
    if value:
        variable.set(value[0])


@reduces(contextvars.Context)
def reduce_context(context: Context, whole: contextvars.Context) -> Any:
    return (make_context, (), list(whole.items()), None, None, fill_context)


@rebuilds
def make_context() -> Any:
    return contextvars.Context()


@rebuilds
def fill_context(whole: Any, items: list[tuple[Any, Any]]) -> None:
    for variable, value in items:
        if not tombstones.is_tombstone(variable):
            whole.run(variable.set, value)


reduces(contextvars.Token)(refuse_with("a token of a context variable", "the context it undoes is gone"))
