"""A task group that is cancelled at the end of its block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background(*, wait: bool = False) -> AsyncIterator[TaskGroup]:
    """Cancel the tasks when the block ends, or with `wait` wait for them if it ends without an error.

    An exception of the block is raised as it is, not in an exception group.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        try:
            yield group
        except Exception as error:  # raised here it would be wrapped in an exception group
            failure = error
        finally:
            if failure is not None or not wait:
                group.cancel_scope.cancel()
    if failure is not None:
        raise failure
