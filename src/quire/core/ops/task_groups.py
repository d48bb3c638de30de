"""Tasks that live as long as a block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background(*, wait: bool = False) -> AsyncIterator[TaskGroup]:
    """A task group whose tasks end with the block, or are waited for where it says so and goes well; what the block
    itself raises comes out as it was."""
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        try:
            yield group
        except Exception as error:  # raised in here, it would come out wrapped in an exception group
            failure = error
        finally:
            if failure is not None or not wait:
                group.cancel_scope.cancel()
    if failure is not None:
        raise failure
