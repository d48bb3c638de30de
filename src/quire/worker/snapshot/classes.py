"""Classes of the notebook by value: made bare, without running their metaclass or their bases again, then filled."""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]
import abc
import collections.abc
import contextlib
import numbers
import types
from collections.abc import Iterator
from typing import Any

from quire.worker.snapshot import tombstones
from quire.worker.snapshot.reducers import (
    Context,
    builtin_base,
    by_name,
    dict_of,
    is_found,
    module_of,
    mro_of,
    name_of,
    named,
    rebuilds,
    reduces,
)

_set = type.__setattr__
_bases_of = type.__dict__["__bases__"].__get__
_qualname_of = type.__dict__["__qualname__"].__get__
_LAYOUT = (types.MemberDescriptorType, types.GetSetDescriptorType)
_FIELDS = ("_fields_", "_pack_", "_anonymous_", "_align_", "_type_", "_length_", "_flags_", "_restype_", "_argtypes_")
_OF_TYPE = {"__dict__", "__weakref__", "__module__", "__abstractmethods__", "_abc_impl", "__qualname__"}
_FIRST = (types.FunctionType, staticmethod, classmethod, property, str, int, float, bool, type(None))
_SINGLETONS = {id(type(each)): str(each) for each in (None, Ellipsis, NotImplemented)}
_ABCS = [each for each in vars(collections.abc).values() if isinstance(each, abc.ABCMeta)] + [
    each for each in vars(numbers).values() if isinstance(each, abc.ABCMeta)
]


def reduce_class(context: Context, cls: type) -> Any:
    if id(cls) in _SINGLETONS:
        return (type_of_singleton, (_SINGLETONS[id(cls)],))
    if is_found(cls):
        return NotImplemented
    if not cls.__flags__ & (1 << 9):
        return _hidden(cls)
    attributes = {name: value for name, value in dict_of(cls).items() if not _is_layout(cls, name, value)}
    first = {name: value for name, value in attributes.items() if any(type(value) is kind for kind in _FIRST)}
    rest = {name: value for name, value in attributes.items() if name not in first}
    order = () if [*first, *rest] == [*attributes] or _is_of_ctypes(type(cls)) else _order(attributes)
    arguments = (_meta(cls), name_of(cls), _qualname_of(cls), cls.__module__, _bases_of(cls), _needed(cls), order)
    state = (Filling(cls, first), rest, _virtual(cls))
    return (make_class, arguments, state, None, None, fill_class)


reduces(type, abc.ABCMeta, derived=True)(reduce_class)


def _is_layout(cls: type, name: str, value: Any) -> bool:
    return name in _OF_TYPE or _is_slot(cls, value) or type(value).__name__ == "CField"


def _order(attributes: dict[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in attributes if name != "__doc__" or attributes[name] is not None)  # it comes by itself


def _hidden(cls: type) -> Any:
    """A class of the interpreter's own that some module shows: `types.MappingProxyType`."""
    for name, each in vars(types).items():
        if each is cls:
            return (named, ("types", name))
    return by_name(cls, _qualname_of(cls))


def _meta(cls: type) -> Any:
    """Its metaclass, or the number of the base that has the same one."""
    bases = _bases_of(cls)
    return next((at for at, base in enumerate(bases) if type(base) is type(cls)), type(cls))


def _needed(cls: type) -> dict[str, Any]:
    """What its layout is made of: the names of its slots, already mangled, and the fields of a ctypes structure."""
    own = dict_of(cls)
    if _is_of_ctypes(type(cls)):
        return {name: own[name] for name in _FIELDS if name in own}
    if "__slots__" not in own:
        return {}
    return {"__slots__": tuple(name for name, value in own.items() if _is_slot(cls, value))}


def _is_of_ctypes(meta: type) -> bool:
    """Its classes are laid out from their fields, and cannot be touched as others are."""
    return any(module_of(each) == "_ctypes" for each in mro_of(meta))


def _inherited(meta: type, name: str) -> Any:
    """The method of a metaclass as the interpreter has it, not as the notebook overrides it."""
    found = (dict_of(each).get(name) for each in mro_of(meta))
    return next(each for each in found if type(each) is types.WrapperDescriptorType)


def _is_slot(cls: type, value: Any) -> bool:
    return any(type(value) is kind for kind in _LAYOUT) and getattr(value, "__objclass__", None) is cls


def _virtual(cls: type) -> dict[str, Any]:
    """What `abc` keeps beside a class: abstract names, classes registered with it, and where it is registered."""
    kept: dict[str, Any] = {}
    if isinstance(cls, abc.ABCMeta):
        kept["abstract"] = sorted(getattr(cls, "__abstractmethods__", ()))
        kept["registered"] = [ref() for ref in _abc._get_dump(cls)[0] if ref() is not None]
    kept["under"] = [each for each in _ABCS if any(ref() is cls for ref in _abc._get_dump(each)[0])]
    return {key: value for key, value in kept.items() if value}


@rebuilds
def type_of_singleton(name: str) -> Any:
    return type({"None": None, "Ellipsis": Ellipsis, "NotImplemented": NotImplemented}[name])


class Filling:
    """A class's methods: put in before anything that may be an instance of it is made."""

    def __init__(self, cls: type, attributes: dict[str, Any]) -> None:
        self.cls = cls
        self.attributes = attributes


@reduces(Filling)
def reduce_filling(context: Context, filling: Filling) -> Any:
    return (fill_methods, (filling.cls, filling.attributes))


@contextlib.contextmanager
def _quiet(bases: tuple[type, ...]) -> Iterator[None]:
    """While a class is made: what its bases do to a subclass they did when the cell ran."""
    aside = []
    for base in bases:
        for each in mro_of(base):
            if "__init_subclass__" in dict_of(each) and each.__flags__ & (1 << 9):
                aside.append((each, dict_of(each)["__init_subclass__"]))
    for each, _ in aside:
        _set(each, "__init_subclass__", classmethod(lambda cls, **words: None))
    try:
        yield
    finally:
        for each, own in reversed(aside):
            _set(each, "__init_subclass__", own)


@rebuilds
def make_class(
    meta: Any,
    name: str,
    qualname: str,
    module: Any,
    bases: tuple[Any, ...],
    needed: dict[str, Any],
    order: tuple[str, ...] = (),
) -> Any:
    """`order`: its attributes, where filling it would put them in another one."""
    for each in (meta, *bases):
        if tombstones.is_one(each):
            return tombstones.lost(f"class {name}", f"what it derives from is gone: {tombstones.sentence(each)}")
    content: dict[str, Any] = {"__module__": module, "__qualname__": qualname, **dict.fromkeys(order), **needed}
    meta = type(bases[meta]) if type(meta) is int else meta
    maker = builtin_base(meta)
    with _quiet(bases):
        cls = maker.__new__(meta, name, bases, content)
        if _is_of_ctypes(meta):
            _inherited(meta, "__init__")(cls, name, bases, content)
    if "__slots__" in needed and not order:
        type.__delattr__(cls, "__slots__")
    if isinstance(cls, abc.ABCMeta):
        _abc._abc_init(cls)
    return cls


@rebuilds
def fill_methods(cls: Any, attributes: dict[str, Any]) -> None:
    if tombstones.is_one(cls):
        return
    put = _inherited(type(cls), "__setattr__")
    for name, value in attributes.items():
        if name not in _FIELDS or not _is_of_ctypes(type(cls)):
            with _open(type(cls), name):
                put(cls, name, value)


@contextlib.contextmanager
def _open(meta: type, name: str) -> Iterator[None]:
    """While an attribute is put into a class: a property of the metaclass over it would take it, or refuse."""
    aside = [
        (each, dict_of(each)[name])
        for each in mro_of(meta)
        if each.__flags__ & (1 << 9) and hasattr(type(dict_of(each).get(name)), "__set__")
    ]
    for each, _ in aside:
        _set(each, name, None)
    try:
        yield
    finally:
        for each, own in aside:
            _set(each, name, own)


@rebuilds
def fill_class(cls: Any, state: tuple[Any, dict[str, Any], dict[str, Any]]) -> None:
    if tombstones.is_one(cls):
        return
    filled, rest, virtual = state
    if tombstones.is_one(filled):
        raise ValueError(tombstones.parts(filled)[1])
    fill_methods(cls, rest)
    if "abstract" in virtual or isinstance(cls, abc.ABCMeta):
        cls.__abstractmethods__ = frozenset(virtual.get("abstract", ()))
    for each in virtual.get("registered", ()):
        if not tombstones.is_one(each):
            abc.ABCMeta.register(cls, each)
    for each in virtual.get("under", ()):
        abc.ABCMeta.register(each, cls)
