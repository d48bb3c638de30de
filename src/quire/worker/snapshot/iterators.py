"""Generators, coroutines and weak references. Unstarted ones are created again, suspended ones are lost."""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import sys
import types
import weakref
from typing import Any

from quire.worker.snapshot import tombstones
from quire.worker.snapshot.reducers import Context, NotSerializable, rebuilds, reduces

_GENERATOR = "a suspended generator"
_NEVER = "where it stands in its code cannot be saved"


@reduces(types.GeneratorType)
def reduce_generator(context: Context, generator: types.GeneratorType[Any, Any, Any]) -> Any:
    match inspect.getgeneratorstate(generator):
        case "GEN_CREATED":
            return _recreate(generator, generator.gi_frame, generator.gi_code, _GENERATOR)
        case "GEN_CLOSED":
            return (finished_generator, (generator.__name__, generator.__qualname__))
    raise NotSerializable(_GENERATOR, "generators cannot be saved")


@reduces(types.CoroutineType)
def reduce_coroutine(context: Context, coroutine: types.CoroutineType[Any, Any, Any]) -> Any:
    if inspect.getcoroutinestate(coroutine) == "CORO_CREATED":
        return _recreate(coroutine, coroutine.cr_frame, coroutine.cr_code, "a coroutine")
    raise NotSerializable("a coroutine", "it has begun, and " + _NEVER)


@reduces(types.AsyncGeneratorType)
def reduce_async_generator(context: Context, generator: types.AsyncGeneratorType[Any, Any]) -> Any:
    if sys.version_info >= (3, 12) and inspect.getasyncgenstate(generator) == "AGEN_CREATED":
        return _recreate(generator, generator.ag_frame, generator.ag_code, "an async generator")
    raise NotSerializable("an async generator", "generators cannot be saved")


def _recreate(thing: Any, frame: Any, code: types.CodeType, what: str) -> Any:
    """A call of the function that created it, with the arguments in its frame."""
    functions = (found for found in gc.get_referents(thing) if type(found) is types.FunctionType)
    made_by = [function for function in functions if function.__code__ is code]
    if not made_by:
        raise NotSerializable(what, "the function that made it is gone")
    values = frame.f_locals
    names = list(code.co_varnames)
    count, keywords = code.co_argcount, code.co_kwonlyargcount
    given = [values[name] for name in names[:count]]
    words = {name: values[name] for name in names[count : count + keywords]}
    at = count + keywords
    if code.co_flags & inspect.CO_VARARGS:
        given += values[names[at]]
        at += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        words.update(values[names[at]])
    return (begin, (made_by[0], tuple(given), words))


@rebuilds
def begin(function: Any, given: tuple[Any, ...], words: dict[str, Any]) -> Any:
    return function if tombstones.is_tombstone(function) else function(*given, **words)


@rebuilds
def finished_generator(name: str, qualname: str) -> Any:
    generator: Any = (char for char in "")
    list(generator)
    generator.__name__, generator.__qualname__ = name, qualname
    return generator


@reduces(type(functools.cmp_to_key(lambda first, second: 0)))
def reduce_key(context: Context, key: Any) -> Any:
    return (make_key, tuple(referent for referent in gc.get_referents(key) if referent is not type(key)))


@rebuilds
def make_key(compare: Any, *wrapped: Any) -> Any:
    made: Any = functools.cmp_to_key(compare)
    return made(*wrapped) if wrapped else made


@reduces(itertools.pairwise)
def reduce_pairs(context: Context, pairs: Any) -> Any:
    if sys.version_info >= (3, 12):
        raise NotSerializable("a pairwise iterator", "what it has read cannot be found")
    return (make_pairs, tuple(gc.get_referents(pairs)))


@rebuilds
def make_pairs(*parts: Any) -> Any:
    """From its iterator and the item it has already read, if any."""
    return itertools.pairwise(itertools.chain(parts[1:2], *parts[:1]))


# Weak references


@reduces(weakref.ref, weakref.WeakMethod, derived=False)
def reduce_reference(context: Context, reference: Any) -> Any:
    target = reference()
    return (make_reference, (type(reference), target, reference.__callback__, target is not None))


@rebuilds
def make_reference(kind: Any, target: Any, callback: Any, alive: bool) -> Any:
    if alive:
        return kind(target) if callback is None or kind is weakref.WeakMethod else kind(target, callback)
    return weakref.ref(type("gone", (), {})())


@reduces(weakref.ProxyType, weakref.CallableProxyType)
def reduce_weak_proxy(context: Context, proxy: Any) -> Any:
    try:
        return (weakref.proxy, (proxy.__reduce_ex__.__self__,))
    except ReferenceError:
        raise NotSerializable("a weak proxy", "its object was gone already") from None


@reduces(weakref.WeakValueDictionary, weakref.WeakKeyDictionary)
def reduce_weak_dict(context: Context, weak: Any) -> Any:
    return (make_weak, (type(weak),), list(weak.items()), None, None, fill_weak)


@reduces(weakref.WeakSet)
def reduce_weak_set(context: Context, weak: Any) -> Any:
    return (make_weak, (type(weak),), list(weak), None, None, fill_weak)


@rebuilds
def make_weak(kind: Any) -> Any:
    return kind()


@rebuilds
def fill_weak(weak: Any, items: list[Any]) -> None:
    weak.update(items)


@reduces(weakref.finalize)
def reduce_finalizer(context: Context, finalizer: Any) -> Any:
    waiting = finalizer.peek()
    if waiting is None:
        return (make_finalizer, (None, None, (), {}, False))
    return (make_finalizer, (*waiting, finalizer.atexit))


@rebuilds
def make_finalizer(target: Any, function: Any, given: Any, words: Any, at_exit: bool) -> Any:
    if function is None:
        finalizer = weakref.finalize(type("gone", (), {})(), lambda: None)
        finalizer.detach()
        return finalizer
    finalizer = weakref.finalize(target, function, *given, **(words or {}))
    finalizer.atexit = at_exit
    return finalizer
