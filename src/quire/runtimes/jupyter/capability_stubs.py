"""Capabilities in a Python kernel of a Jupyter server: stubs are sent once, calls come as questions on stdin."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from quire.clients.jupyter.ports import Execution, JupyterError, KernelConnection, Message
from quire.core.capabilities.model import Catalog
from quire.core.errors import OperationFailed
from quire.core.model import KernelSpec
from quire.core.ports.kernel import Relay
from quire.runtimes.jupyter import kernel_queries
from quire.wire import frames, relay, texts
from quire.wire.messages import BadMessage

log = logging.getLogger(__name__)
_QUIRE = Path(__file__).parents[2]
_FIRST = "quire.worker.capabilities.kernel_capabilities"
_IN_PLACE = {
    "quire.worker.capabilities.relay": _QUIRE / "runtimes/wasm/guest/in_place/relay.py"
}  # a call is a function
_MARK = "quire calls a capability: "  # no prompt of people's begins so
_SOON = 5.0  # seconds that a run waits for the kernel to learn of them
_NONE = -1  # in place of a catalog's version: the kernel knows of none


class Offering:
    """For one kernel."""

    def __init__(self, calls: Relay, spec: KernelSpec) -> None:
        self._calls = calls
        self._spec = spec
        self._offered = _NONE
        self._under_way: asyncio.Task[None] | None = None

    def begun_anew(self) -> None:
        """The kernel knows nothing any more."""
        self._offered = _NONE

    async def offer(self, connection: KernelConnection, catalog: Catalog) -> None:
        """Where the kernel does not take them the code runs without: that is logged."""
        if catalog.version == self._offered or (self._offered == _NONE and not catalog.entries):
            return
        given = f"offer({json.dumps(catalog.entries)!r})"
        try:
            async with asyncio.timeout(_SOON):
                if self._offered == _NONE:
                    given = f"arrive({_sources()!r}, {_MARK!r}) or {given}"
                await kernel_queries.look(connection, given, "install_stubs.py")
            self._offered = catalog.version
        except (OperationFailed, TimeoutError) as error:
            log.warning("capabilities are not offered to notebook %r: %s", self._spec.name, error or "it is busy")

    def take(self, message: Message, execution: Execution) -> bool:
        """Whether what the kernel says is a call, which is answered from here on."""
        prompt = message.content.get("prompt") if message.kind == "input_request" else None
        if isinstance(prompt, str) and prompt.startswith(_MARK):
            self.give_up()
            self._under_way = asyncio.ensure_future(self._answer(prompt.removeprefix(_MARK), execution))
            return True
        if message.kind in ("error", "execute_reply"):
            self.give_up()
        return False

    def give_up(self) -> None:
        """Nobody waits for the call under way any more."""
        if self._under_way is not None:
            self._under_way.cancel()
            self._under_way = None

    async def _answer(self, said: str, execution: Execution) -> None:
        try:
            called = texts.load(relay.KERNEL_MESSAGES, said, frames.FROM_CODE)
            if not isinstance(called, relay.Called):
                raise BadMessage("no call")
            answer = await self._calls.call(self._spec, called)
        except BadMessage as error:
            answer = relay.Refused(call=0, kind="refused", message=f"What was called could not be read: {error}.")
        try:
            await execution.reply(texts.dump(answer, frames.FROM_SERVER))
        except JupyterError as error:
            log.warning("answering a call from notebook %r: %s", self._spec.name, error)


@cache
def _sources() -> dict[str, str]:
    """The modules that the stubs are made of, under a name that nothing in the kernel has."""
    found: dict[str, str] = {}
    todo = [_FIRST, "quire.wire.texts"]
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = _IN_PLACE.get(name, _QUIRE.parent / f"{name.replace('.', '/')}.py").read_text("utf-8")
            todo += _imported(found[name])
    return {_renamed(name): _renamed(source) for name, source in found.items()}


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("quire."):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                module = (_QUIRE.parent / f"{inner.replace('.', '/')}.py").is_file()
                yield inner if module else node.module


def _renamed(text: str) -> str:
    return re.sub(r"\bquire\.(tool_descriptions|wire|worker)", r"_quire_inside.\1", text)
