"""Capabilities in a Python kernel of a Jupyter server: stubs are installed once, calls arrive as input requests."""

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
_STUBS_MODULE = "quire.worker.capabilities.kernel_capabilities"
_REPLACED = {
    "quire.worker.capabilities.relay": _QUIRE / "runtimes/wasm/guest/in_place/relay.py"
}  # calls are functions there
_CALL_PREFIX = "quire calls a capability: "  # no prompt of a person starts with this
_OFFER_TIMEOUT_S = 5.0  # a run waits this long for the stubs
_NO_CATALOG = -1  # the catalog version of a kernel without stubs


class CapabilityStubs:
    """The stubs in one kernel."""

    def __init__(self, calls: Relay, spec: KernelSpec) -> None:
        self._calls = calls
        self._spec = spec
        self._catalog_version = _NO_CATALOG
        self._call: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """The kernel was restarted."""
        self._catalog_version = _NO_CATALOG

    async def offer(self, connection: KernelConnection, catalog: Catalog) -> None:
        """Send a new catalog. If it fails, a warning is logged and the code runs without capabilities."""
        if catalog.version == self._catalog_version or (self._catalog_version == _NO_CATALOG and not catalog.entries):
            return
        expression = f"offer({json.dumps(catalog.entries)!r})"
        try:
            async with asyncio.timeout(_OFFER_TIMEOUT_S):
                if self._catalog_version == _NO_CATALOG:
                    expression = f"arrive({_module_sources()!r}, {_CALL_PREFIX!r}) or {expression}"
                await kernel_queries.call_helper(connection, expression, "install_stubs.py")
            self._catalog_version = catalog.version
        except (OperationFailed, TimeoutError) as error:
            log.warning("capabilities are not offered to notebook %r: %s", self._spec.name, error or "it is busy")

    def handle_call(self, message: Message, execution: Execution) -> bool:
        """Whether the message is a capability call. It is answered in the background."""
        prompt = message.content.get("prompt") if message.kind == "input_request" else None
        if isinstance(prompt, str) and prompt.startswith(_CALL_PREFIX):
            self.cancel_call()
            self._call = asyncio.ensure_future(self._answer(prompt.removeprefix(_CALL_PREFIX), execution))
            return True
        if message.kind in ("error", "execute_reply"):
            self.cancel_call()
        return False

    def cancel_call(self) -> None:
        """Cancel the current call."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    async def _answer(self, request: str, execution: Execution) -> None:
        try:
            call = texts.load(relay.KERNEL_MESSAGES, request, frames.FROM_CODE)
            if not isinstance(call, relay.Called):
                raise BadMessage("no call")
            answer = await self._calls.call(self._spec, call)
        except BadMessage as error:
            answer = relay.Refused(call=0, kind="refused", message=f"What was called could not be read: {error}.")
        try:
            await execution.reply(texts.dump(answer, frames.FROM_SERVER))
        except JupyterError as error:
            log.warning("answering a call from notebook %r: %s", self._spec.name, error)


@cache
def _module_sources() -> dict[str, str]:
    """Sources of the modules that the stubs need, renamed to a package that does not exist in the kernel."""
    sources: dict[str, str] = {}
    names = [_STUBS_MODULE, "quire.wire.texts"]
    while names:
        name = names.pop()
        if name not in sources:
            sources[name] = _REPLACED.get(name, _QUIRE.parent / f"{name.replace('.', '/')}.py").read_text("utf-8")
            names += _imported_modules(sources[name])
    return {_rename_packages(name): _rename_packages(source) for name, source in sources.items()}


def _imported_modules(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("quire."):
            for alias in node.names:
                name_inside = f"{node.module}.{alias.name}"
                module = (_QUIRE.parent / f"{name_inside.replace('.', '/')}.py").is_file()
                yield name_inside if module else node.module


def _rename_packages(text: str) -> str:
    return re.sub(r"\bquire\.(tool_descriptions|wire|worker)", r"_quire_inside.\1", text)
