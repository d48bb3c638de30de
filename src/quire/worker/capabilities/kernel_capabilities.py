"""The installed and native capabilities of this kernel, and their names in builtins."""

from __future__ import annotations

import builtins
from typing import Any

from quire.wire.messages import Native as NativeMessage
from quire.worker.capabilities import errors, native, results
from quire.worker.capabilities.catalog import Caps
from quire.worker.capabilities.native import Native, Registry
from quire.worker.capabilities.relay import Relay
from quire.worker.capabilities.stubs import Capability
from quire.worker.execution.interrupts import Interrupts

_PYTHON_NAMES = frozenset(vars(builtins)) | {"get_ipython", "display", "In", "Out", "exit", "quit"}


class KernelCapabilities:
    """One for a kernel."""

    def __init__(self, interrupts: Interrupts, namespace: dict[str, Any]) -> None:
        self.relay = Relay(interrupts)
        self.registry = Registry(self, namespace)
        self.caps = Caps(self)
        self.capabilities: dict[str, Capability] = {}  # also uninstalled ones: code may still hold them
        self._put: dict[str, Any] = {}  # names that were set in builtins
        self._named = -1  # version of the registry whose names are set
        self._told = 0  # version of the registry that the server knows
        self._fixed = {
            "caps": self.caps,
            "capability": self.caps.capability,
            "register_capability": self.caps.register_capability,
            **{kind.__name__: kind for kind in errors.ALL},
        }
        results.ask = self.ask
        self._name()

    def apply(self, catalog: list[dict[str, Any]]) -> None:
        """Apply a catalog of the installed capabilities."""
        entries = {entry["name"]: entry for entry in catalog if type(entry.get("name")) is str}
        for name in entries:
            self.named(name)
        for name, capability in self.capabilities.items():
            capability._apply(entries.get(name))
        self._name()

    def named(self, name: str) -> Capability:
        """The single object of that name, installed or not."""
        if name not in self.capabilities:
            self.capabilities[name] = Capability(self, name)
        return self.capabilities[name]

    def installed(self) -> dict[str, Capability]:
        return {name: capability for name, capability in self.capabilities.items() if capability._entry is not None}

    def every(self) -> dict[str, Any]:
        """All capabilities by name; native ones hide installed ones."""
        entries = self.registry.entries
        own = {name: _as_object(self.registry, name, entry) for name, entry in entries.items()}
        return {**self.installed(), **own}

    def is_taken(self, name: str) -> str:
        if name in self.installed():
            return f"{name} is an installed capability. Choose another name, or caps.uninstall({name!r}) first."
        if name in _PYTHON_NAMES or name in self._fixed:
            return f"{name!r} is a name of Python's own. Choose another, such as {name}_cap."
        return ""

    # Requests to the server

    def ask(self, do: str, **words: Any) -> dict[str, Any]:
        return self.relay.call(do, **words)

    async def ask_async(self, do: str, **words: Any) -> dict[str, Any]:
        return await self.relay.call_async(do, **words)

    def refresh(self) -> None:
        self.adopt_catalog(self.ask("catalog"))

    def adopt_catalog(self, answer: dict[str, Any]) -> None:
        catalog = answer.get("catalog")
        if isinstance(catalog, list):
            self.apply([entry for entry in catalog if isinstance(entry, dict)])

    # Messages to the server

    def news(self) -> NativeMessage | None:
        """The native capabilities if they changed since the last message. Called after each run."""
        self.registry.put()
        if self.registry.changes == self._told:
            return None
        self._told = self.registry.changes
        self._name()
        return NativeMessage(capabilities=self.registry.told())

    def tell_again(self) -> None:
        """Send everything next time: the server may know another version."""
        self._told = -1

    def all_news(self) -> NativeMessage | None:
        """The native capabilities, for a server that knows none."""
        self._told = self.registry.changes
        return NativeMessage(capabilities=self.registry.told()) if self.registry.entries else None

    def loaded(self) -> NativeMessage | None:
        """Register the capabilities among loaded variables."""
        had = bool(self.registry.entries)
        self.registry.adopt()
        self._name()
        self._told = self.registry.changes
        return NativeMessage(capabilities=self.registry.told()) if had or self.registry.entries else None

    # Names in builtins

    def _name(self) -> None:
        """Set the names in builtins. Never replaces Python's builtins or those set by cells."""
        wanted = {**{name: value for name, value in self.every().items() if name not in _PYTHON_NAMES}, **self._fixed}
        space = vars(builtins)
        for name, value in list(self._put.items()):
            if name not in wanted and space.get(name) is value:
                del space[name]
        for name, value in wanted.items():
            if name not in space or (name in self._put and space[name] is self._put[name]) or name in self._fixed:
                space[name] = self._put[name] = value
        for name in [name for name in self._put if name not in wanted]:
            del self._put[name]


def _as_object(registry: Registry, name: str, entry: dict[str, Any]) -> Any:
    value = entry["value"]
    return value if isinstance(value, native.Function) else Native(registry, name)
