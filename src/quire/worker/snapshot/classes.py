"""Classes of the notebook by value: created without running their metaclass or bases, then filled."""

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
    is_global,
    module_of,
    mro_of,
    name_of,
    named,
    own_dict_of,
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
_SINGLETONS = {id(type(value)): str(value) for value in (None, Ellipsis, NotImplemented)}
_ABCS = [cls for cls in vars(collections.abc).values() if isinstance(cls, abc.ABCMeta)] + [
    cls for cls in vars(numbers).values() if isinstance(cls, abc.ABCMeta)
]


def reduce_class(context: Context, cls: type) -> Any:
    if id(cls) in _SINGLETONS:
        return (type_of_singleton, (_SINGLETONS[id(cls)],))
    if is_global(cls):
        return NotImplemented
    if not cls.__flags__ & (1 << 9):
        return _by_types_module(cls)
    attributes = {name: value for name, value in own_dict_of(cls).items() if not _is_layout(cls, name, value)}
    first = {name: value for name, value in attributes.items() if any(type(value) is kind for kind in _FIRST)}
    rest = {name: value for name, value in attributes.items() if name not in first}
    order = () if [*first, *rest] == [*attributes] or _is_of_ctypes(type(cls)) else _attribute_order(attributes)
    arguments = (_metaclass(cls), name_of(cls), _qualname_of(cls), cls.__module__, _bases_of(cls), _layout(cls), order)
    state = (MethodFilling(cls, first), rest, _abc_registrations(cls))
    return (make_class, arguments, state, None, None, fill_class)


reduces(type, abc.ABCMeta, derived=True)(reduce_class)


def _is_layout(cls: type, name: str, value: Any) -> bool:
    return name in _OF_TYPE or _is_slot(cls, value) or type(value).__name__ == "CField"


def _attribute_order(attributes: dict[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in attributes if name != "__doc__" or attributes[name] is not None)  # set automatically


def _by_types_module(cls: type) -> Any:
    """A class of the interpreter that a module exports, such as `types.MappingProxyType`."""
    for name, value in vars(types).items():
        if value is cls:
            return (named, ("types", name))
    return by_name(cls, _qualname_of(cls))


def _metaclass(cls: type) -> Any:
    """Its metaclass, or the index of a base with the same one."""
    bases = _bases_of(cls)
    return next((at for at, base in enumerate(bases) if type(base) is type(cls)), type(cls))


def _layout(cls: type) -> dict[str, Any]:
    """Attributes that define its layout: mangled names of slots, fields of a ctypes structure."""
    own = own_dict_of(cls)
    if _is_of_ctypes(type(cls)):
        return {name: own[name] for name in _FIELDS if name in own}
    if "__slots__" not in own:
        return {}
    return {"__slots__": tuple(name for name, value in own.items() if _is_slot(cls, value))}


def _is_of_ctypes(meta: type) -> bool:
    """Whether its classes are laid out by ctypes, so that attributes are set differently."""
    return any(module_of(base) == "_ctypes" for base in mro_of(meta))


def _interpreter_method(meta: type, name: str) -> Any:
    """The method of a metaclass from the interpreter, not an override of the notebook."""
    found = (own_dict_of(base).get(name) for base in mro_of(meta))
    return next(method for method in found if type(method) is types.WrapperDescriptorType)


def _is_slot(cls: type, value: Any) -> bool:
    return any(type(value) is kind for kind in _LAYOUT) and getattr(value, "__objclass__", None) is cls


def _abc_registrations(cls: type) -> dict[str, Any]:
    """Data that `abc` keeps: abstract names, registered classes, and where the class is registered."""
    registrations: dict[str, Any] = {}
    if isinstance(cls, abc.ABCMeta):
        registrations["abstract"] = sorted(getattr(cls, "__abstractmethods__", ()))
        registrations["registered"] = [ref() for ref in _abc._get_dump(cls)[0] if ref() is not None]
    registrations["under"] = [base for base in _ABCS if any(ref() is cls for ref in _abc._get_dump(base)[0])]
    return {key: value for key, value in registrations.items() if value}


@rebuilds
def type_of_singleton(name: str) -> Any:
    return type({"None": None, "Ellipsis": Ellipsis, "NotImplemented": NotImplemented}[name])


class MethodFilling:
    """The methods of a class, set before instances of it are created."""

    def __init__(self, cls: type, attributes: dict[str, Any]) -> None:
        self.cls = cls
        self.attributes = attributes


@reduces(MethodFilling)
def reduce_filling(context: Context, filling: MethodFilling) -> Any:
    return (fill_methods, (filling.cls, filling.attributes))


@contextlib.contextmanager
def _without_init_subclass(bases: tuple[type, ...]) -> Iterator[None]:
    """Disable `__init_subclass__` of the bases, which already ran in the cell."""
    aside = []
    for base in bases:
        for base_class in mro_of(base):
            if "__init_subclass__" in own_dict_of(base_class) and base_class.__flags__ & (1 << 9):
                aside.append((base_class, own_dict_of(base_class)["__init_subclass__"]))
    for base_class, _ in aside:
        _set(base_class, "__init_subclass__", classmethod(lambda cls, **words: None))
    try:
        yield
    finally:
        for base_class, own in reversed(aside):
            _set(base_class, "__init_subclass__", own)


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
    """`order`: names of attributes, if filling would change their order."""
    for part in (meta, *bases):
        if tombstones.is_tombstone(part):
            why = f"what it derives from is gone: {tombstones.sentence(part)}"
            return tombstones.lost_on_load(f"class {name}", why)
    content: dict[str, Any] = {"__module__": module, "__qualname__": qualname, **dict.fromkeys(order), **needed}
    meta = type(bases[meta]) if type(meta) is int else meta
    maker = builtin_base(meta)
    with _without_init_subclass(bases):
        cls = maker.__new__(meta, name, bases, content)
        if _is_of_ctypes(meta):
            _interpreter_method(meta, "__init__")(cls, name, bases, content)
    if "__slots__" in needed and not order:
        type.__delattr__(cls, "__slots__")
    if isinstance(cls, abc.ABCMeta):
        _abc._abc_init(cls)
    return cls


@rebuilds
def fill_methods(cls: Any, attributes: dict[str, Any]) -> None:
    if tombstones.is_tombstone(cls):
        return
    put = _interpreter_method(type(cls), "__setattr__")
    for name, value in attributes.items():
        if name not in _FIELDS or not _is_of_ctypes(type(cls)):
            with _without_descriptor(type(cls), name):
                put(cls, name, value)


@contextlib.contextmanager
def _without_descriptor(meta: type, name: str) -> Iterator[None]:
    """Hide descriptors of the metaclass while an attribute of the class is set."""
    aside = [
        (owner, own_dict_of(owner)[name])
        for owner in mro_of(meta)
        if owner.__flags__ & (1 << 9) and hasattr(type(own_dict_of(owner).get(name)), "__set__")
    ]
    for owner, _ in aside:
        _set(owner, name, None)
    try:
        yield
    finally:
        for owner, own in aside:
            _set(owner, name, own)


@rebuilds
def fill_class(cls: Any, state: tuple[Any, dict[str, Any], dict[str, Any]]) -> None:
    if tombstones.is_tombstone(cls):
        return
    filled, rest, virtual = state
    if tombstones.is_tombstone(filled):
        raise ValueError(tombstones.fields(filled)[1])
    fill_methods(cls, rest)
    if "abstract" in virtual or isinstance(cls, abc.ABCMeta):
        cls.__abstractmethods__ = frozenset(virtual.get("abstract", ()))
    for registered in virtual.get("registered", ()):
        if not tombstones.is_tombstone(registered):
            abc.ABCMeta.register(cls, registered)
    for registry in virtual.get("under", ()):
        abc.ABCMeta.register(registry, cls)
