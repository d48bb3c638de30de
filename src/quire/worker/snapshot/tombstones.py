"""Placeholders for objects that could not be saved: what it was, why, and which cell creates it again."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

_get = object.__getattribute__
_set = object.__setattr__


class GoneError(RuntimeError):
    """An object that was not saved is used."""

    __module__ = "builtins"


class Tombstone:
    """Raises GoneError on use, except for repr, identity, hash and pickle."""

    __slots__ = ("__quire_cell__", "__quire_name__", "__quire_what__", "__quire_why__", "__weakref__")
    __module__ = "builtins"

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            return _get(self, name)
        if name.startswith(("_repr_", "_ipython_")):
            raise AttributeError(name)  # displays probe for these
        raise GoneError(sentence(self))

    def __repr__(self) -> str:
        return f"<gone: {sentence(self)}>"

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return other is self or _raise(self)

    def __ne__(self, other: object) -> bool:
        return other is not self and _raise(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return (_user_made, fields(self))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in Tombstone.__slots__:
            _raise(self)
        _set(self, name, value)


def make_tombstone(what: str, why: str, name: str = "", cell: str = "") -> Any:
    """A tombstone for `what` ("a suspended generator"), with one clause why it cannot be kept."""
    stone = Tombstone()
    for key, text in (("what", what), ("why", why), ("name", name), ("cell", cell)):
        _set(stone, f"__quire_{key}__", str(text))
    return stone


def set_location(tombstone: Any, variable: str, cell: str = "") -> None:
    """Set the variable it is in and the cell that creates it again ("cell 3")."""
    _set(tombstone, "__quire_name__", variable)
    _set(tombstone, "__quire_cell__", cell)


def set_what(tombstone: Any, what: str) -> None:
    """Change the description, if it replaces the whole of something."""
    _set(tombstone, "__quire_what__", what)


def fields(tombstone: Any) -> tuple[str, str, str, str]:
    """What, why, name, cell."""
    return (
        _get(tombstone, "__quire_what__"),
        _get(tombstone, "__quire_why__"),
        _get(tombstone, "__quire_name__"),
        _get(tombstone, "__quire_cell__"),
    )


def sentence(tombstone: Any) -> str:
    try:
        what, why, name, cell = fields(tombstone)
    except AttributeError:
        return "This is gone."
    again = f" Run {cell} again." if cell else ""
    return f"{name or 'This'} was {what}; {why}.{again}"


def is_tombstone(thing: Any) -> bool:
    return type(thing) is Tombstone


def _raise(stone: Any, *_: Any, **__: Any) -> NoReturn:
    raise GoneError(sentence(stone))


_USES = """call iter next len bool contains getitem setitem delitem missing reversed delattr enter exit aenter aexit
await aiter anext index int float complex bytes fspath format length_hint round trunc floor ceil
lt le gt ge neg pos abs invert mro_entries class_getitem add sub mul matmul truediv floordiv mod divmod pow lshift
rshift and xor or radd rsub rmul rmatmul rtruediv rfloordiv rmod rdivmod rpow rlshift rrshift rand rxor ror iadd isub
imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ixor ior instancecheck subclasscheck buffer"""

for _use in _USES.split():
    setattr(Tombstone, f"__{_use}__", _raise)


# Pickles of users refer to this by a module without dots, since `quire` is not importable from cells.
def _user_made(what: str, why: str, name: str = "", cell: str = "") -> Any:
    return make_tombstone(what, why, name, cell)


_user_made.__module__ = "_quire_tombstones"
_user_made.__qualname__ = "_user_made"
sys.modules.setdefault("_quire_tombstones", sys.modules[__name__])


# Losses during a load


class _CollectedLosses:
    """Tombstones created while a stream is loaded."""

    stones: list[Any] | None = None


def lost_on_load(what: str, why: str) -> Any:
    """A tombstone for an object that was saved but cannot be loaded; reported as a loss."""
    stone = make_tombstone(what, why)
    if _CollectedLosses.stones is not None:
        _CollectedLosses.stones.append(stone)
    return stone


def collect_losses(stones: list[Any] | None) -> None:
    _CollectedLosses.stones = stones


def take_losses() -> list[Any]:
    """Tombstones created since the last call."""
    stones, _CollectedLosses.stones = _CollectedLosses.stones or [], []
    return stones
