"""The notebook of a call: the one it names, else the client's current one, else `main`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from quire.core.errors import InvalidRequest, NotFound
from quire.core.kernels.slots import KernelSlots
from quire.core.model import Notebook, Principal
from quire.core.notebooks.access import Access, Caller, parse_name
from quire.core.notebooks.service import MAIN, Notebooks
from quire.core.notebooks.sharing import Sharing

_MAX_CLIENTS = 10_000  # per principal; the least recently used are forgotten, their notebooks stay
_MAX_LISTED = 20  # names in an error message
_NAME_ADVICE = "Pass `notebook` (`notebook_name` in the tool set jupyter)"


@dataclass(frozen=True, kw_only=True)
class Client(Caller):
    """A caller and its transport session, if it has one."""

    session: str | None = None
    is_shared: bool = False  # may be several clients: protocol 2026-07-28 over HTTP cannot tell them apart


@dataclass(frozen=True)
class _Choice:
    """What a client chose last. A shared client has no choice, since others would get it too."""

    name: str | None = None
    failed: str | None = None  # a choice that failed after that: calls are refused until another succeeds


_NO_CHOICES: OrderedDict[Client, _Choice] = OrderedDict()


class CurrentNotebooks:
    """The current notebook of each client. Calls of a shared client mean the only notebook in use."""

    def __init__(
        self, notebooks: Notebooks, sharing: Sharing, slots: KernelSlots, session_runtimes: Collection[str] = ()
    ) -> None:
        """Notebooks on `session_runtimes` are sandbox sessions. A call without a name never means one."""
        self._notebooks = notebooks
        self._sharing = sharing
        self._slots = slots
        self._session_runtimes = frozenset(session_runtimes)
        self._choices: dict[Principal, OrderedDict[Client, _Choice]] = {}
        self._in_use: dict[Principal, OrderedDict[str, None]] = {}  # titles of notebooks used since the start

    async def resolve(self, client: Client, name: str | None = None, needed: Access = Access.WRITE) -> Notebook:
        found = (
            await self._resolve_unnamed(client, needed)
            if name is None
            else await self._resolve_named(client, name, needed)
        )
        if needed is not Access.READ:
            self._mark_in_use(client, found.title)
        return found

    async def _resolve_named(self, client: Client, name: str, needed: Access) -> Notebook:
        if name == MAIN:
            return await self._notebooks.get_or_create(client.principal, MAIN)
        return await self._sharing.find(client, name, needed)

    async def _resolve_unnamed(self, client: Client, needed: Access) -> Notebook:
        if client.is_shared:
            return await self._resolve_only_one(client, needed)
        choice = self._choice(client)
        if choice.failed is not None:
            before = f" {choice.name!r} was current before." if choice.name else ""
            raise InvalidRequest(
                f"No notebook is current, since {choice.failed!r} could not be used.{before} Nothing was done. "
                f"{_NAME_ADVICE}, or call use_notebook."
            )
        if choice.name is None:
            return await self._resolve_default(client)
        self._choices[client.principal].move_to_end(client)
        return await self._sharing.find(client, choice.name, needed)

    async def _resolve_only_one(self, client: Client, needed: Access) -> Notebook:
        names = list(self._in_use.get(client.principal, ()))
        if len(names) != 1:
            own = {book.title: book for book in await self._notebooks.list_notebooks(client.principal)}
            names = [name for name in names if name in own or await self._can_read(client, name)]
            self._in_use[client.principal] = OrderedDict.fromkeys(names)
            names = names or [name for name, book in own.items() if book.runtime not in self._session_runtimes]
        if not names:
            return await self._resolve_default(client)
        if len(names) == 1:
            return await self._sharing.find(client, names[0], needed)
        more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
        raise InvalidRequest(
            f"Which notebook? There are {', '.join(map(repr, names[-_MAX_LISTED:]))}{more}. Nothing was done. "
            f"{_NAME_ADVICE} in each call: over HTTP, protocol 2026-07-28 has no current notebook."
        )

    async def _can_read(self, client: Client, name: str) -> bool:
        """Whether it is another user's notebook that the caller may still read."""
        with suppress(NotFound, InvalidRequest):
            return bool(parse_name(name)[0] and await self._sharing.find(client, name, Access.READ))
        return False

    def peek_name(self, client: Client) -> str:
        """The notebook that a call without a name would mean, without creating it; "" if it would be refused."""
        if client.is_shared:
            return self.chosen_name(client) or ""
        choice = self._choice(client)
        return "" if choice.failed is not None else choice.name or MAIN

    def chosen_name(self, client: Client) -> str | None:
        """The notebook that this client made current, or the only one in use, or None."""
        if client.is_shared:
            names = list(self._in_use.get(client.principal, ()))
            return names[0] if len(names) == 1 else None
        choice = self._choice(client)
        return choice.name if choice.failed is None else None

    def has_chosen(self, client: Client) -> bool:
        """Whether a call without a name means anything but the default notebook."""
        if client.is_shared:
            return bool(self._in_use.get(client.principal))
        return self._choice(client) != _Choice()

    def unset(self, client: Client, name: str) -> str | None:
        """Forget a choice of this notebook. Returns what is current then."""
        self._in_use.get(client.principal, OrderedDict()).pop(name, None)
        choice = self._choice(client)
        if choice.name == name:
            self._remember(client, replace(choice, name=None))
        return self.chosen_name(client)

    @contextmanager
    def choosing(self, client: Client, name: str) -> Iterator[None]:
        """Make a notebook current in this block. If that fails, calls without a name are refused, since they were meant
        for that notebook. Nothing is stored for a shared client, whose other calls go on."""
        try:
            yield
        except BaseException:
            usual = MAIN if MAIN in self._in_use.get(client.principal, ()) else None
            self._remember(client, _Choice(self._choice(client).name or usual, failed=name))
            raise

    async def choose(self, client: Client, name: str) -> Notebook:
        """Make an existing notebook current."""
        with self.choosing(client, name):
            found = await self._resolve_named(client, name, Access.READ)
            self.set(client, found)
        return found

    def set(self, client: Client, notebook: Notebook) -> None:
        self._mark_in_use(client, notebook.title)
        self._remember(client, _Choice(notebook.title))

    def _choice(self, client: Client) -> _Choice:
        return self._choices.get(client.principal, _NO_CHOICES).get(client, _Choice())

    def _remember(self, client: Client, choice: _Choice) -> None:
        if client.is_shared:
            return
        choices = self._choices.setdefault(client.principal, OrderedDict())
        choices[client] = choice
        choices.move_to_end(client)
        while len(choices) > _MAX_CLIENTS:
            choices.popitem(last=False)

    def _mark_in_use(self, client: Client, title: str) -> None:
        in_use = self._in_use.setdefault(client.principal, OrderedDict())
        in_use[title] = None
        while len(in_use) > _MAX_CLIENTS:
            in_use.popitem(last=False)

    async def _resolve_default(self, client: Client) -> Notebook:
        """`main`; if another server on this data directory runs it, `main-2`, and so on."""
        number = 1
        while True:
            name = MAIN if number == 1 else f"{MAIN}-{number}"
            notebook = await self._notebooks.get_or_create(client.principal, name)
            if await self._slots.reserve(notebook):
                if number > 1:
                    self.set(client, notebook)
                return notebook
            number += 1
