"""`caps`: lists, searches and installs capabilities."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from quire.tool_descriptions import tools
from quire.worker.capabilities import native, results
from quire.worker.capabilities.stubs import Method

if TYPE_CHECKING:
    from quire.worker.capabilities.kernel_capabilities import KernelCapabilities

_INSTALLS = "caps.install(name, command) or caps.install(name, url=...) adds one"


class Caps:
    """The capabilities there are. caps.search("words") finds a method, caps["name"] is one of them."""

    __module__ = "builtins"
    Record, Text, Picture = results.Record, results.Text, results.Picture
    Sound, Resource, Contents = results.Sound, results.Resource, results.Contents
    Function, Native = native.Function, native.Native

    def __init__(self, known: KernelCapabilities) -> None:
        self._known = known

    # Lists

    def __repr__(self) -> str:
        lines = [_line(entry) for entry in self._entries()]
        return "\n".join(lines) if lines else f"No capabilities are installed. {_INSTALLS}."

    def __iter__(self) -> Iterator[str]:
        return iter(self._known.every())

    def __len__(self) -> int:
        return len(self._known.every())

    def __contains__(self, name: object) -> bool:
        return name in self._known.every()

    def __getitem__(self, name: str) -> Any:
        capabilities = self._known.every()
        if name not in capabilities:
            raise KeyError(self._missing(name))
        return capabilities[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        capabilities = self._known.every()
        if name not in capabilities:
            raise AttributeError(self._missing(name))
        return capabilities[name]

    def __dir__(self) -> list[str]:
        return [*self._known.every(), "search", "describe", "install", "uninstall", "unregister"]

    def __reduce__(self) -> str:
        return "caps"

    def describe(self, name: str | None = None) -> str:
        """All methods in a line each; of one capability, with all it says of itself. "gmail.search" is one method."""
        if name is None:
            return "\n\n".join(tools.overview(entry) for entry in self._entries()) or repr(self)
        first, _, method = str(name).partition(".")
        capability = self[first]
        if method:
            return str(getattr(capability, method).__doc__)
        return str(capability.describe())

    def search(self, query: str, limit: int = 5) -> Found:
        """The methods that fit best, over all capabilities: signature and one line each."""
        entries = self._entries()
        by_name = {entry["name"]: {id(tool): name for name, tool in tools.methods(entry).items()} for entry in entries}
        best = tools.search(entries, query, limit)
        lines = (tools.summary_line(tool, by_name[name].get(id(tool), "")) for name, tool in best)
        return Found(f"{name}.{line}" for (name, _), line in zip(best, lines, strict=True))

    # Changes

    def install(
        self,
        name: str,
        command: Any = None,
        *,
        url: str | None = None,
        env: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        auth: str | None = None,
        config: str | None = None,
        approve: Any = None,
    ) -> Any:
        """Have another MCP server as a capability: by the command that starts it, by its url, or by its entry in
        another client's configuration file. Secrets are given as references: "env:NAME" or "file:/path"."""
        words = {"command": command, "url": url, "env": env, "headers": headers, "auth": auth, "config": config}
        given = {key: value for key, value in {**words, "approve": approve}.items() if value is not None}
        given = {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
        self._known.adopt_catalog(self._known.ask("install", capability=str(name), given=given))
        return self._known.capabilities.get(str(name))

    def uninstall(self, name: str) -> None:
        """Let go of one; of one the notebook itself offers, too."""
        if name in self._known.registry.entries:
            self.unregister(name)
        else:
            self._known.adopt_catalog(self._known.ask("uninstall", capability=str(name)))

    def unregister(self, name: str) -> None:
        """Offer no more what the notebook itself offers under that name."""
        if name not in self._known.registry.entries:
            raise KeyError(self._missing(name))
        self._known.registry.remove(name)
        self._known._name()

    def register_capability(self, obj: Any, *, approve: str = "never", expose: bool = False) -> Any:
        """Offer an object that has a `name` and `describe()` as a capability, here and to the client.

        approve: "allow", "ask" or "ask_or_deny"; expose: publish its methods as MCP tools.
        """
        made = native.register(self._known.registry, obj, approve=approve, expose=expose)
        self._known._name()
        return made

    def capability(
        self, function: Any = None, /, *, approve: str = "never", expose: bool = False, name: str = ""
    ) -> Any:
        """Offer a function as a capability: @capability, or @capability(approve="always", expose=True)."""
        if function is None:
            return lambda given: self.capability(given, approve=approve, expose=expose, name=name)
        made = native.register_function(self._known.registry, function, approve=approve, expose=expose, name=name)
        self._known._name()
        return made

    # Named in pickles

    def _capability(self, name: str) -> Any:
        return self._known.named(name)

    def _method(self, capability: str, own_name: str) -> Method:
        return self._known.named(capability)._method(own_name)

    def _function(self, name: str) -> Any:
        return native.Function(self._known.registry, name, None)

    def _native(self, name: str) -> Any:
        return native.Native(self._known.registry, name)

    def _entries(self) -> list[dict[str, Any]]:
        native_entries = self._known.registry.told()
        names = {entry["name"] for entry in native_entries}
        relayed = [capability._entry for name, capability in self._known.installed().items() if name not in names]
        return [*filter(None, relayed), *({**entry, "tools": entry["methods"]} for entry in native_entries)]

    def _missing(self, name: str) -> str:
        names = list(self._known.every())
        near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
        known = f"the nearest: {', '.join(near)}" if near else f"there are: {', '.join(names) or 'none'}"
        return f"There is no capability {name!r}; {known}. {_INSTALLS}."


def _line(entry: dict[str, Any]) -> str:
    about = tools.first_line(entry.get("about"))
    count = len(entry.get("tools") or ())
    kind = ", of this notebook" if "methods" in entry else ""
    return f"{entry['name']} ({count} method{'s' * (count != 1)}{kind}){f'  # {about}' if about else ''}"


class Found(list[str]):
    """Results of a search, one per line."""

    __module__ = "builtins"
    __qualname__ = "caps.Found"

    def __repr__(self) -> str:
        return "\n".join(self) if self else "Nothing fits. caps shows what is installed."


Caps.Found = Found  # type: ignore[attr-defined]
