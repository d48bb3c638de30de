"""Objects of the standard library that pickle refuses or gets wrong: enums, exceptions, typing, functools."""

from __future__ import annotations

import builtins
import ctypes
import dataclasses
import enum
import functools
import gc
import random
import re
import struct
import sys
import types
import typing
from typing import Any

from quire.worker.snapshot import tombstones
from quire.worker.snapshot.reducers import (
    Context,
    NotSerializable,
    Reference,
    bare,
    builtin_base,
    by_name,
    is_global,
    mro_of,
    own_dict_of,
    rebuilds,
    reduce_itself,
    reduces,
    reduces_named,
    refuse_with,
    set_state,
)


@reduces(type(Ellipsis), type(NotImplemented))
def reduce_singleton(context: Context, thing: Any) -> Any:
    return (builtin, (str(thing),))


@rebuilds
def builtin(name: str) -> Any:
    return vars(builtins)[name]


@rebuilds
def module_object(module: str, name: str) -> Any:
    __import__(module)
    return getattr(sys.modules[module], name)


@reduces_named("dataclasses._MISSING_TYPE", "dataclasses._KW_ONLY_TYPE")
def reduce_sentinel(context: Context, thing: Any) -> Any:
    return (module_object, ("dataclasses", "MISSING" if thing is dataclasses.MISSING else "KW_ONLY"))


@reduces_named("dataclasses._HAS_DEFAULT_FACTORY_CLASS")
def reduce_factory_mark(context: Context, thing: Any) -> Any:
    return (module_object, ("dataclasses", "_HAS_DEFAULT_FACTORY"))


@reduces_named("dataclasses._FIELD_BASE")
def reduce_field_kind(context: Context, kind: Any) -> Any:
    return (module_object, ("dataclasses", kind.name))


@reduces(random.SystemRandom)
def reduce_system_random(context: Context, thing: Any) -> Any:
    module = sys.modules.get("secrets")
    if module is not None and thing is getattr(module, "_sysrand", None):
        return (module_object, ("secrets", "_sysrand"))
    return (type(thing), (), thing.__dict__, None, None, set_state)


# Enums: members of notebook classes are saved by value


@reduces(enum.Enum, derived=True)
def reduce_member(context: Context, member: enum.Enum) -> Any:
    if is_global(type(member)):
        return reduce_itself(context, member)
    base = builtin_base(type(member))
    content = base.__getnewargs__(member) if hasattr(base, "__getnewargs__") else ()
    return (bare, (type(member), *content), member.__dict__, None, None, set_state)


# Exceptions: with notes, cause and context, without traceback


@reduces(BaseException, derived=True)
def reduce_exception(context: Context, error: BaseException) -> Any:
    kind = type(error)
    if any("__reduce__" in own_dict_of(base) or "__reduce_ex__" in own_dict_of(base) for base in _python_part(kind)):
        return reduce_itself(context, error)
    state: dict[str, Any] = {"dict": error.__dict__, "fields": _fields(error)}
    state["cause"], state["context"] = error.__cause__, error.__context__
    state["suppress"] = error.__suppress_context__
    return (make_exception, (kind, error.args), state, None, None, fill_exception)


def _python_part(kind: type) -> list[type]:
    return [base for base in mro_of(kind) if base.__module__ != "builtins"]


def _fields(error: BaseException) -> dict[str, Any]:
    """Attributes of built-in exceptions besides args: filename, line, name."""
    fields: dict[str, Any] = {}
    for base in mro_of(type(error)):
        if base.__module__ != "builtins" or base in (BaseException, BaseExceptionGroup, object):
            continue
        for name, descriptor in own_dict_of(base).items():
            if type(descriptor) in (types.MemberDescriptorType, types.GetSetDescriptorType) and name[:2] != "__":
                value = getattr(error, name, None)
                if value is not None:
                    fields[name] = value
    return fields


@rebuilds
def make_exception(kind: Any, arguments: tuple[Any, ...]) -> Any:
    if tombstones.is_tombstone(kind):
        return kind
    base = builtin_base(kind)
    error = base.__new__(kind, *arguments)
    error.args = arguments
    return error


@rebuilds
def fill_exception(error: Any, state: dict[str, Any]) -> None:
    if tombstones.is_tombstone(error):
        return
    error.__dict__.update(state["dict"])
    for name, value in state["fields"].items():
        try:
            setattr(error, name, value)
        except (AttributeError, TypeError):
            continue  # already set by the arguments
    for name in ("cause", "context"):
        if not tombstones.is_tombstone(state[name]):
            setattr(error, f"__{name}__", state[name])
    error.__suppress_context__ = state["suppress"]


reduces(types.TracebackType)(refuse_with("a traceback", "where code stood cannot be saved"))
reduces(types.FrameType)(refuse_with("a frame", "where code stood cannot be saved"))


# Views of other objects


@reduces(types.MappingProxyType)
def reduce_proxy(context: Context, proxy: Any) -> Any:
    shown = gc.get_referents(proxy)[0]
    if type(shown) is dict and "__doc__" in shown:
        for owner in gc.get_referrers(shown):
            if isinstance(owner, type):
                return (dict_of_class, (owner,))
    return (types.MappingProxyType, (shown,))


@rebuilds
def dict_of_class(cls: type) -> Any:
    return cls.__dict__


@reduces(type({}.keys()), type({}.values()), type({}.items()))
def reduce_view(context: Context, view: Any) -> Any:
    return (view_of, (gc.get_referents(view)[0], type(view).__name__.removeprefix("dict_")))


@rebuilds
def view_of(shown: Any, which: str) -> Any:
    return getattr(shown, which)()


@reduces(memoryview)
def reduce_memoryview(context: Context, view: memoryview) -> Any:
    if not view.contiguous or view.format.startswith(("@", "<", ">", "=", "!")):
        raise NotSerializable("a memoryview", "it skips bytes")
    if view.readonly and type(view.obj) in (bytes, str):
        return (make_view, (bytes(view), 0, view.nbytes, view.format, view.shape, True))
    if type(view.obj) is not bytearray and type(view.obj).__module__ not in ("array", "mmap", "numpy"):
        raise NotSerializable("a memoryview", "what it shows cannot be found")
    whole = memoryview(view.obj)
    if view.readonly and whole.readonly:
        raise NotSerializable("a memoryview", "what it shows cannot be found")
    start = 0 if view.nbytes == whole.nbytes else _address(view) - _address(whole)
    return (make_view, (view.obj, start, view.nbytes, view.format, view.shape, view.readonly))


def _address(view: memoryview) -> int:
    if view.readonly:
        raise NotSerializable("a memoryview", "where it begins cannot be found")
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


@rebuilds
def make_view(shown: Any, start: int, size: int, form: str, shape: tuple[int, ...], readonly: bool) -> Any:
    if tombstones.is_tombstone(shown):
        return shown
    flat = memoryview(shown).cast("B")[start : start + size]
    view = flat.cast(form) if len(shape) == 1 else flat.cast(form, shape)  # type: ignore[call-overload]
    return view.toreadonly() if readonly else view


# functools, re, struct


@reduces(functools._lru_cache_wrapper)
def reduce_cached(context: Context, cached: Any) -> Any:
    if is_global(cached):
        return by_name(cached, cached.__qualname__)
    limits = cached.cache_parameters()
    state = {key: value for key, value in cached.__dict__.items() if key not in ("__wrapped__", "cache_parameters")}
    return (make_cached, (limits["maxsize"], limits["typed"], cached.__wrapped__), state, None, None, fill_cached)


@rebuilds
def make_cached(maxsize: Any, typed: bool, function: Any) -> Any:
    """A function with an empty cache."""
    return function if tombstones.is_tombstone(function) else functools.lru_cache(maxsize, typed)(function)


@rebuilds
def fill_cached(cached: Any, state: dict[str, Any]) -> None:
    if not tombstones.is_tombstone(cached):
        cached.__dict__.update(state)


@reduces(re.Match)
def reduce_match(context: Context, match: re.Match[Any]) -> Any:
    place = (match.string, match.pos, match.endpos)
    for method in ("search", "match", "fullmatch"):
        again = getattr(match.re, method)(*place)
        if again is not None and again.regs == match.regs:
            return (match_again, (match.re, method, *place, 0))
    for count, again in enumerate(match.re.finditer(*place)):
        if again.regs == match.regs:
            return (match_again, (match.re, "finditer", *place, count))
    raise NotSerializable("a match", "its pattern does not find it again")


@rebuilds
def match_again(pattern: re.Pattern[Any], method: str, text: Any, start: int, end: int, count: int) -> Any:
    found = getattr(pattern, method)(text, start, end)
    return list(found)[count] if method == "finditer" else found


@reduces(struct.Struct)
def reduce_struct(context: Context, layout: struct.Struct) -> Any:
    return (struct.Struct, (layout.format,))


# argparse compares SUPPRESS by identity


@reduces_named("argparse.Action", "argparse.ArgumentParser", derived=True)
def reduce_parser(context: Context, part: Any) -> Any:
    reduced = reduce_itself(context, part)
    mark = sys.modules["argparse"].SUPPRESS
    reference = context.kept.setdefault("SUPPRESS", Reference("argparse", "SUPPRESS"))
    if type(reduced[2]) is not dict:
        return reduced
    state = {name: reference if value is mark else value for name, value in reduced[2].items()}
    return (*reduced[:2], state, *reduced[3:])


# typing: variables and aliases of the notebook by value


@reduces(typing.TypeVar, typing.ParamSpec, typing.NewType, *([typing.TypeVarTuple]))
def reduce_variable(context: Context, variable: Any) -> Any:
    if getattr(variable, "__module__", None) not in (None, "__main__"):
        try:
            return by_name(variable, variable.__name__)
        except NotSerializable:
            pass
    kind = type(variable)
    words: dict[str, Any] = {}
    arguments: tuple[Any, ...] = (variable.__name__,)
    if kind is typing.NewType:
        arguments = (variable.__name__, variable.__supertype__)
    if kind is typing.TypeVar:
        arguments = (variable.__name__, *variable.__constraints__)
    if kind in (typing.TypeVar, typing.ParamSpec):
        words = {key: getattr(variable, f"__{key}__", None) for key in ("bound", "covariant", "contravariant")}
        words["infer_variance"] = getattr(variable, "__infer_variance__", False)
    if getattr(variable, "has_default", lambda: False)():
        words["default"] = variable.__default__
    given = {key: value for key, value in words.items() if value not in (None, False)}
    return (make_variable, (kind, arguments, given, variable.__module__, getattr(variable, "__qualname__", None)))


@rebuilds
def make_variable(kind: Any, arguments: Any, words: Any, module: str, qualname: str | None) -> Any:
    variable = kind(*arguments, **words)
    variable.__module__ = module
    if qualname is not None and kind is typing.NewType:
        variable.__qualname__ = qualname
    return variable


@reduces_named("typing.TypeAliasType")
def reduce_alias(context: Context, alias: Any) -> Any:
    if is_global(alias):
        return by_name(alias, alias.__name__)
    return (make_alias, (alias.__name__, alias.__value__, alias.__type_params__))


@rebuilds
def make_alias(name: str, value: Any, parameters: Any) -> Any:
    return typing.TypeAliasType(name, value, type_params=parameters)  # type: ignore[attr-defined]


for _name in ("HASH", "HASHXOF", "blake2b", "blake2s", "sha3_256", "sha3_512", "md5", "sha1", "sha256", "sha512"):
    for _module in ("_hashlib", "_blake2", "_sha3", "_md5", "_sha1", "_sha2", "_sha256", "_sha512"):
        reduces_named(f"{_module}.{_name}")(refuse_with("a hash object", "what it has read so far cannot be saved"))
