"""Read a namespace through its kernel, between runs."""

from __future__ import annotations

import anyio

from quire.core.errors import InvalidRequest, NotFound, OperationFailed
from quire.core.kernels.pool import KernelPool
from quire.core.model import Died, Notebook
from quire.wire import messages

_TIMEOUT_S = 5.0


class KernelInspector:
    def __init__(self, kernels: KernelPool) -> None:
        self._kernels = kernels

    async def inspect(self, notebook: Notebook) -> messages.Inspected | None:
        """The variables of the namespace; None while a cell runs or without a kernel."""
        slots = self._kernels.slots
        if slots.is_busy(notebook) or slots.live_kernel(notebook) is None:
            return None
        answer = await self._ask(notebook, messages.Inspect())
        return answer if isinstance(answer, messages.Inspected) else None

    async def read_variable(self, notebook: Notebook, name: str) -> messages.Value:
        """The value of a variable, after the runs that were requested before."""
        answer = await self._ask(notebook, messages.Read(name=name))
        if not isinstance(answer, messages.Value):
            raise OperationFailed(f"The kernel did not say what {name!r} is.")
        return answer

    async def read_rows(self, notebook: Notebook, table: str, start: int, rows: int) -> messages.Paged:
        """Rows of a displayed table, as it is now."""
        if self._kernels.slots.live_kernel(notebook) is None:
            raise NotFound("The table is gone with the kernel that showed it. Run the cell again.")
        if self._kernels.slots.is_busy(notebook):
            raise InvalidRequest("A cell runs now; rows can be read when it is done.")
        answer = await self._ask(notebook, messages.Page(table=table, start=start, rows=rows))
        if not isinstance(answer, messages.Paged):
            raise OperationFailed("The kernel did not say what the table holds.")
        if answer.why_not:
            raise NotFound(f"The table cannot be read: {answer.why_not}")
        return answer

    async def _ask(
        self, notebook: Notebook, question: messages.Inspect | messages.Read | messages.Page
    ) -> messages.Event | Died | None:
        async with self._kernels.lease(notebook) as lease:
            if lease.notice:
                self._kernels.slots.add_notice(notebook, lease.notice)
            with anyio.move_on_after(_TIMEOUT_S):
                answer = await lease.kernel.ask(question)
                if not isinstance(answer, Died):
                    return answer
            await lease.kernel.kill()  # the end of the lease revives it, and the next answer says so
        return None
