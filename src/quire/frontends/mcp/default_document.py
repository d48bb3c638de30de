"""The document of the setting `jupyter.document`, which clients use as notebook `default` until they use another."""

from __future__ import annotations

from quire.core.app import App
from quire.core.errors import InvalidRequest
from quire.core.model import Notebook
from quire.core.notebooks.access import Caller
from quire.core.ports.jupyter import RUNTIME

NAME = "default"


async def open_for(app: App, caller: Caller, kernel: str = "") -> Notebook:
    """The caller's notebook of that document, made at its first use. `kernel`: the id of the kernel it runs in.

    Raises NotFound if there is no such document or kernel, OperationFailed if its server does not answer.
    """
    app.caller_policy.check_jupyter(caller)
    place = await app.jupyter.place("", app.jupyter.document, create=False)
    found = await find(app, caller)
    if found is not None and not kernel and found.document is not None and found.document.path == place.path:
        return found
    if found is not None:  # made for another document before a restart
        await app.kernels.slots.forget(found)
        await app.notebooks.delete(found)
    if kernel:
        place = await app.jupyter.adopt(place, kernel)
    try:
        return await app.notebooks.create(caller.principal, NAME, RUNTIME, document=place)
    except InvalidRequest:  # another call made it meanwhile
        return await app.notebooks.get(caller.principal, NAME)


async def find(app: App, caller: Caller) -> Notebook | None:
    return await app.notebooks.find(caller.principal, NAME)
