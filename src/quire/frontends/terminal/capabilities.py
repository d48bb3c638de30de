"""`quire capability`: list, add and remove capabilities, or import them from another client."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from quire.core.app import App
from quire.core.capabilities import names
from quire.core.capabilities.model import Capability
from quire.core.capabilities.request import parse_backend, plain_secrets
from quire.core.errors import InvalidRequest, QuireError
from quire.core.model import LOCAL
from quire.core.phrases import count
from quire.frontends.terminal import tables


async def run(app: App, action: str, names: list[str], given: Mapping[str, Any]) -> int | None:
    match action, names:
        case "list", []:
            await show(app)
        case "add", [name]:
            await add(app, name, given)
        case "remove", [name]:
            await remove(app, name)
        case "import", [config, *chosen]:
            return await import_servers(app, config, chosen)
        case _:
            raise InvalidRequest("The actions are list, add NAME, import CLIENT|FILE [SERVER…] and remove NAME.")
    return None


async def show(app: App) -> None:
    listed = Table("name", "methods", "reached by", box=None, header_style="bold")
    for capability, _ in await app.capabilities.all(LOCAL):
        listed.add_row(
            Text(capability.name), str(len(capability.offered.tools)), Text(capability.backend.how), style=None
        )
    if listed.row_count:
        tables.show(listed)
    else:
        print("No capability is installed. `quire capability add` adds one, `quire capability import` imports some.")


async def add(app: App, name: str, given: Mapping[str, Any]) -> None:
    backend = parse_backend(name, given, app.backends.described)
    _tell(await app.capabilities.install(LOCAL, name, backend))
    if secrets := plain_secrets(backend):
        print(f"{', '.join(secrets)} is stored as given. With env:NAME it stays out of the data directory.")


async def remove(app: App, name: str) -> None:
    await app.capabilities.uninstall(LOCAL, name)
    print(f"Uninstalled {name}.")


async def import_servers(app: App, config: str, chosen: list[str]) -> int:
    """Install servers of another client; if none is named, list them."""
    there = app.backends.servers(config)
    if not chosen:
        print(f"Servers there: {', '.join(there) or 'none'}. Name the ones to import.")
        return 0
    failed = 0
    for server in chosen:
        try:
            name = names.suggest_name(server, [each.name for each, _ in await app.capabilities.all(LOCAL)])
            _tell(await app.capabilities.install(LOCAL, name, app.backends.described(config, server)))
        except QuireError as error:
            print(f"{server}: {error.for_person}", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


def pairs(texts: list[str]) -> dict[str, str]:
    """A dict of NAME=VALUE texts."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{text!r} is not NAME=VALUE.")
        found[name] = value
    return found


def _tell(capability: Capability) -> None:
    methods = count(len(capability.offered.tools), "method")
    print(f"Installed {capability.name}: {methods} ({capability.backend.how}).")
