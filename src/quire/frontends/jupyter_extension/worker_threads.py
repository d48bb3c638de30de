"""Stops anyio's worker threads, which can keep a Jupyter server from exiting.

anyio stops a worker thread when the task that it belongs to is done. A room of jupyter-collaboration leaves such tasks
pending when its server ends, and the interpreter waits for their threads without end (jupyter-collaboration issue 161).
"""

from __future__ import annotations

import contextlib
import queue
import threading

_NAME = "anyio worker threads"


def stop_with_process() -> None:
    """Stop the threads after the main thread has ended: no event loop runs by then, so no work is lost."""
    if all(thread.name != _NAME for thread in threading.enumerate()):
        threading.Thread(target=_stop_after_main_thread, name=_NAME, daemon=True).start()


def _stop_after_main_thread() -> None:
    threading.main_thread().join()
    for thread in threading.enumerate():
        if type(thread).__module__.startswith("anyio."):
            stop(thread)


def stop(thread: threading.Thread) -> None:
    """Tell an anyio worker thread to end after its current job. Other threads are ignored."""
    jobs = getattr(thread, "queue", None)
    if isinstance(jobs, queue.Queue):
        with contextlib.suppress(queue.Full):
            jobs.put_nowait(None)
