"""A kernel that is started before anything runs in it."""

from __future__ import annotations

import logging

import anyio
from anyio.abc import TaskGroup

from quire.core.errors import QuireError
from quire.core.kernels.pool import KernelPool
from quire.core.model import Notebook

log = logging.getLogger(__name__)
_MOMENT = 1.0  # seconds that one who makes a session waits for it


async def begin(kernels: KernelPool, group: TaskGroup, notebook: Notebook) -> None:
    """Back when it is there, or after a moment; it starts all the same. What is wrong with it the first run says."""
    there = anyio.Event()
    group.start_soon(_begin, kernels, notebook, there)
    with anyio.move_on_after(_MOMENT):
        await there.wait()


async def _begin(kernels: KernelPool, notebook: Notebook, there: anyio.Event) -> None:
    try:
        async with kernels.turn(notebook) as slot:
            await kernels.ensure(notebook, slot)
    except QuireError:
        log.info("a kernel of notebook %r could not be started ahead", notebook.name, exc_info=True)
    finally:
        there.set()
