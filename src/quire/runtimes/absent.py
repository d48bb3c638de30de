"""A runtime that this machine cannot have: it says why, to queries and to kernel starts."""

from __future__ import annotations

from typing import NoReturn

from quire.core.errors import OperationFailed
from quire.core.model import KernelSpec, RuntimeInfo


class AbsentRuntime:
    def __init__(self, name: str, why: str) -> None:
        self._name = name
        self._why = why

    async def start(self, spec: KernelSpec) -> NoReturn:
        raise OperationFailed(f"The notebook {spec.name!r} is one of the runtime {self._name}: {self._why}")

    async def about(self) -> RuntimeInfo:
        return RuntimeInfo(name=self._name, why_not=self._why)

    @property
    def spares(self) -> int:
        return 0

    async def ready(self) -> None:
        """There is nothing to wait for."""
