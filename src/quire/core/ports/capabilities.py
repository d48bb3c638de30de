"""What the core needs from outside for capabilities: backends, and where they are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from quire.core.capabilities.model import Backend, Capability, Offered, Result
from quire.core.model import Principal


class Listener(Protocol):
    """Whoever uses a connection hears what its backend says unasked. Each returns at once and never raises."""

    def changed(self, offered: Offered) -> None:
        """It offers something else now."""

    def logged(self, level: str, text: str) -> None: ...

    def lost(self, why: str) -> None:
        """The connection ended without being closed; a sentence's end."""


class Connection(Protocol):
    """A backend that is connected. Any number of calls at once; cancelling one cancels it there, too.

    Each raises Lost where the connection ends, CallTimeout past `timeout` seconds, OperationFailed with the backend's
    words where it refuses.
    """

    @property
    def offered(self) -> Offered: ...

    def check(self, tool: str, arguments: dict[str, Any]) -> None:
        """Raises WrongArguments if they do not fit the schema the tool declares, as far as it can be trusted."""

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        timeout: float,
        progress: Callable[[float, float | None, str], None],
    ) -> Result: ...

    async def resources(self, *, timeout: float) -> dict[str, Any]:
        """{resources, templates}, each as MCP lists them."""
        ...

    async def read(self, uri: str, *, timeout: float) -> dict[str, Any]:
        """{contents}"""
        ...

    async def prompts(self, *, timeout: float) -> dict[str, Any]:
        """{prompts}"""
        ...

    async def prompt(self, name: str, arguments: dict[str, str], *, timeout: float) -> dict[str, Any]:
        """{description, messages}"""
        ...

    async def close(self) -> None:
        """End it, and the process it was; nothing of it is left. Twice is once."""


class Backends(Protocol):
    """Ways to reach MCP servers."""

    def described(self, config: str | dict[str, Any], name: str) -> Backend:
        """The one that an entry of `mcpServers` describes; or, in the file of this path or of this client (cursor,
        ...), the entry of that name. Raises InvalidRequest or NotFound."""
        ...

    def variables(self, backend: Backend) -> set[str]:
        """Of the environment, that its secrets are in."""
        ...

    def servers(self, config: str) -> list[str]:
        """The names there are in such a file. Raises as `described`."""
        ...

    async def connect(self, backend: Backend, listener: Listener, *, timeout: float) -> Connection:
        """Connect and list all that the backend offers. Raises OperationFailed with the reason and the end of the
        process's stderr, and leaves nothing running."""
        ...


class CapabilityStore(Protocol):
    """Installed capabilities. When a method returns, its change is on disk."""

    def version(self) -> int:
        """Return a number that changes when any process changes a capability. Fast."""
        ...

    async def save(self, capability: Capability) -> None:
        """Replace the capability of that name, if there is one."""

    async def update_offered(self, capability: Capability) -> None:
        """Save what it offers now, unless it was replaced meanwhile."""

    async def list_for_owner(self, owner: Principal) -> list[Capability]:
        """Return the owner's capabilities, oldest first."""
        ...

    async def delete(self, owner: Principal, name: str) -> None: ...
