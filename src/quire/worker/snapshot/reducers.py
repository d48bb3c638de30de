"""Rules that reduce objects for pickle, and checks of objects' own reductions."""

from __future__ import annotations

import collections
import copyreg
import datetime
import decimal
import fractions
import sys
import types
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from quire.worker.snapshot.modules import importable

Rule = Callable[["Context", Any], Any]
_F = TypeVar("_F", bound=Callable[..., Any])

mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
name_of: Callable[[type], str] = type.__dict__["__name__"].__get__
module_of: Callable[[type], Any] = type.__dict__["__module__"].__get__
own_dict_of: Callable[[type], Any] = type.__dict__["__dict__"].__get__
_newobj, _newobj_ex = copyreg.__newobj__, copyreg.__newobj_ex__  # type: ignore[attr-defined]
_dispatch: dict[Any, Any] = copyreg.dispatch_table
_LIST_ITERATOR: type = type(iter([]))
_DICT_ITERATOR: type = type(iter({}.items()))


class NotSerializable(Exception):
    """The object cannot be saved; a tombstone replaces it."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why


class Context:
    """The dump that a rule is part of."""

    def __init__(self, namespace: dict[str, Any], on_main: Callable[[Callable[[], Any]], Any]) -> None:
        self.namespace = namespace
        self.on_main = on_main  # runs a function in the main thread
        self.owners: dict[int, Any] = {}  # id of a buffer's source -> array that owns the memory
        self.facts: dict[int, Any] = {}  # id of a type -> _ClassFacts
        self.kept: dict[Any, Any] = {}  # cache of rules
        self.dynamic: dict[int, types.ModuleType] = {}  # id of its dict -> module, for modules created by hand
        self.report: Callable[[Any, str, str], None] = lambda thing, what, why: None  # reports a loss without tombstone


EXACT: dict[int, Rule] = {}  # by id of a type, since metaclasses may override hash and ==
DERIVED: dict[int, Rule] = {}  # for a type and subclasses without own reduction
NAMED: dict[str, Rule] = {}  # by "module.Name", for types of libraries that are not imported here
NAMED_DERIVED: dict[str, Rule] = {}
REBUILDS: dict[str, Callable[..., Any]] = {}
_keep_alive: list[Any] = []  # so that ids are not reused
SAFE = {
    id(kind)
    for kind in (
        *(datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone),
        *(decimal.Decimal, fractions.Fraction, complex, range, uuid.UUID),
        *(collections.deque, collections.OrderedDict, collections.defaultdict, collections.Counter),
    )
}  # reduce themselves and never raise


def reduces(*kinds: type, derived: bool = False) -> Callable[[_F], _F]:
    def register(rule: _F) -> _F:
        for kind in kinds:
            EXACT[id(kind)] = rule
            if derived:
                DERIVED[id(kind)] = rule
            _keep_alive.append(kind)
        return rule

    return register


def reduces_named(*names: str, derived: bool = False) -> Callable[[_F], _F]:
    def register(rule: _F) -> _F:
        for name in names:
            NAMED[name] = rule
            if derived:
                NAMED_DERIVED[name] = rule
        return rule

    return register


def rebuilds(function: _F) -> _F:
    """Register a function that streams refer to: its name and parameters are part of the format."""
    REBUILDS[f"{function.__module__}.{function.__name__}"] = function
    return function


class _AfterLoad:
    tasks: list[Callable[[], None]] = []  # noqa: RUF012 - of the one load there is


def after_load(task: Callable[[], None]) -> None:
    """Run `task` after the load, since a repeated load must not have its side effects twice."""
    _AfterLoad.tasks.append(task)


trial_loads: list[bool] = []  # if not empty, loaded objects are discarded and must not write to files


def begin_load() -> None:
    _AfterLoad.tasks = []


def end_load() -> None:
    tasks, _AfterLoad.tasks = _AfterLoad.tasks, []
    for task in tasks:
        task()


def refuse_with(what: str, why: str) -> Rule:
    def rule(context: Context, thing: Any) -> Any:
        raise NotSerializable(what, why)

    return rule


def qualified_type_name(kind: type) -> str:
    module = module_of(kind)
    return f"{module}.{name_of(kind)}" if type(module) is str else name_of(kind)


def with_article(thing: Any) -> str:
    """ "a DataFrame", "an int", without running user code."""
    name = name_of(type(thing))
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"


def rule_for(kind: type) -> Rule | None:
    """The rule for a type, or None if pickle's default is right and cannot raise."""
    rule = EXACT.get(id(kind)) or NAMED.get(qualified_type_name(kind))
    if rule is not None:
        return rule
    if id(kind) in SAFE:
        return None
    for base in mro_of(kind):
        rule = DERIVED.get(id(base)) or NAMED_DERIVED.get(qualified_type_name(base))
        if rule is not None:
            return rule
        if "__reduce__" in own_dict_of(base) or "__reduce_ex__" in own_dict_of(base):
            break  # it has its own reduction
    if _is_plain(kind):
        return None if not _defines(mro_of(kind), "__new__") or is_global(kind) else reduce_plainly
    return reduce_plainly if _is_unsupported(kind) else reduce_itself


def _is_unsupported(kind: type) -> bool:
    """Whether it refuses only since patsy has not implemented pickling."""
    refusal = getattr(sys.modules.get("patsy.util"), "no_pickling", None)
    if refusal is None or not _has_dict_only(kind):
        return False
    return any(own_dict_of(base).get("__getstate__") is refusal for base in mro_of(kind))


_CUSTOM_REDUCTION = ("__reduce_ex__", "__reduce__", "__getstate__", "__getattribute__", "__class__")


def _is_plain(kind: type) -> bool:
    """Whether it is a Python class that inherits its reduction from `object`."""
    classes = mro_of(kind)
    if _defines(mro_of(type(kind))[:-2], "__hash__", "__eq__"):
        return False  # pickle would call the metaclass
    if classes[-1] is not object or _defines(classes, "__getattr__", "__getnewargs__", "__getnewargs_ex__"):
        return False
    if _defines(classes, "__new__") and (_needs_arguments(kind) if is_global(kind) else not _has_dict_only(kind)):
        return False
    bases = classes[:-1]
    if _defines(bases, *_CUSTOM_REDUCTION) or any(len(own_dict_of(base)) and not is_python(base) for base in bases):
        return False
    return not _in_dispatch(kind)


def _has_dict_only(kind: type) -> bool:
    """Whether the state of its instances is their `__dict__`."""
    classes = mro_of(kind)[:-1]
    return builtin_base(kind) is object and kind.__dictoffset__ != 0 and not _defines(classes, "__slots__")


def is_python(kind: type) -> bool:
    return "__module__" in own_dict_of(kind) and bool(kind.__flags__ & (1 << 9))


def _defines(classes: tuple[type, ...], *names: str) -> bool:
    return any(name in own_dict_of(base) for base in classes if base is not object for name in names)


def _in_dispatch(kind: type) -> bool:
    try:
        return kind in _dispatch
    except BaseException:
        return False


def reduce_itself(context: Context, thing: Any) -> Any:
    """The object's own reduction, checked, since pickle fails the whole stream for an invalid one."""
    kind = type(thing)
    facts = context.facts.get(id(kind))
    if facts is None:
        facts = context.facts[id(kind)] = _ClassFacts(kind)
    reduced = thing.__reduce_ex__(5) if facts.registered is None else facts.registered(thing)
    if type(reduced) is str:
        return by_name(thing, reduced)
    if not isinstance(reduced, tuple) or not 2 <= len(reduced) <= 6:
        raise NotSerializable(with_article(thing), _INVALID_REDUCTION)
    function, arguments, state, items, pairs, setter = (*reduced, None, None, None, None)[:6]
    if not callable(function) or not isinstance(arguments, tuple) or not (setter is None or callable(setter)):
        raise NotSerializable(with_article(thing), _INVALID_REDUCTION)
    _check_new(thing, function, arguments)
    if function is _newobj and facts.remade_by is not None:
        function, arguments = facts.new, (kind, *facts.remade_by(thing))
    if items is not None or pairs is not None:
        items, pairs = _checked_items(items, thing), _checked_items(pairs, thing, pairs=True)
    if state is not None and setter is None and facts.guesses:
        setter = set_state
    return (function, arguments, state, items, pairs, setter)


def reduce_plainly(context: Context, thing: Any) -> Any:
    """Reduce an instance to its `__dict__`, without calling `__new__` again."""
    return (_new, (type(thing),), thing.__dict__ or None)


_new = object.__new__
_INVALID_REDUCTION = "what its __reduce__ returns is no reduction"


class _ClassFacts:
    """Facts about a class, computed once."""

    def __init__(self, kind: type) -> None:
        self.kind = kind  # so that its id is not reused
        self.registered = _dispatch[kind] if _in_dispatch(kind) else None
        self.guesses = _answers_any_attribute(kind)
        self.remade_by: Any = None
        if _runs_python_new(kind):
            base = builtin_base(kind)
            self.new = base.__new__
            self.remade_by = getattr(base, "__getnewargs__", lambda thing: ())


def _check_new(thing: Any, function: Any, arguments: tuple[Any, ...]) -> None:
    name = getattr(function, "__name__", "")
    if name == "__newobj_ex__" and len(arguments) != 3:
        raise NotSerializable(with_article(thing), _INVALID_REDUCTION)
    if name in ("__newobj__", "__newobj_ex__") and (
        not arguments or not isinstance(arguments[0], type) or thing.__class__ is not arguments[0]
    ):
        raise NotSerializable(with_article(thing), "it says it is of another class")


def _checked_items(items: Any, thing: Any, pairs: bool = False) -> Iterator[Any] | None:
    """An iterator that cannot raise during the dump."""
    if items is None or type(items) is (_DICT_ITERATOR if pairs else _LIST_ITERATOR):
        return cast("Iterator[Any] | None", items)
    whole = list(items)
    if pairs and not all(isinstance(pair, tuple) and len(pair) == 2 for pair in whole):
        raise NotSerializable(with_article(thing), _INVALID_REDUCTION)
    return iter(whole)


def _runs_python_new(kind: type) -> bool:
    """Whether it has a Python `__new__` with unknown arguments, which must not run again."""
    if type(_first_new(kind)) is not staticmethod or _has_getnewargs(kind):
        return False
    return hasattr(builtin_base(kind), "__getnewargs__") or _needs_arguments(kind) or not is_global(kind)


def _has_getnewargs(kind: type) -> bool:
    """Whether a Python class defines `__getnewargs__`; those of types like `str` do not count."""
    own = tuple(base for base in mro_of(kind) if base.__flags__ & (1 << 9))
    return _defines(own, "__getnewargs__", "__getnewargs_ex__")


def _needs_arguments(kind: type) -> bool:
    new = getattr(_first_new(kind), "__func__", None)
    if type(new) is not types.FunctionType:
        return False
    code = new.__code__
    if code.co_kwonlyargcount > len(new.__kwdefaults__ or ()):
        return True
    return code.co_argcount - len(new.__defaults__ or ()) > 1


def _first_new(kind: type) -> Any:
    return next(own_dict_of(base)["__new__"] for base in mro_of(kind) if "__new__" in own_dict_of(base))


def builtin_base(kind: type) -> Any:
    return next(base for base in mro_of(kind) if type(own_dict_of(base).get("__new__")) is types.BuiltinFunctionType)


@rebuilds
def bare(cls: type, *content: Any) -> Any:
    """Create an instance without running the `__new__` of its class."""
    return builtin_base(cls).__new__(cls, *content)


def _answers_any_attribute(kind: type) -> bool:
    """Whether it answers any attribute, also `__setstate__`, before its state is set."""
    classes = mro_of(kind)
    return _defines(classes, "__getattr__", "__getattribute__") and not _defines(classes, "__setstate__")


@rebuilds
def set_state(thing: Any, state: Any) -> None:
    """Set the state as pickle does without `__setstate__`."""
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        object.__getattribute__(thing, "__dict__").update(attributes)
    for name, value in (slots or {}).items():
        object.__setattr__(thing, name, value)


def by_name(thing: Any, qualname: str) -> Any:
    """A reference to the global that is this object. Raises NotSerializable."""
    module = getattr(thing, "__module__", None)
    if type(module) is str and find_global(module, qualname) is thing:
        return (named, (module, qualname))
    for name, candidate in list(sys.modules.items()):
        if type(candidate) is types.ModuleType and find_global(name, qualname) is thing:
            return (named, (name, qualname))
    raise NotSerializable(with_article(thing), f"no module has it as {qualname}")


class Reference:
    """A reference to a global of a module."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name


@reduces(Reference)
def reduce_reference(context: Context, reference: Reference) -> Any:
    return (named, (reference.module, reference.name))


@rebuilds
def named(module: str, qualname: str) -> Any:
    __import__(module)
    value: Any = sys.modules[module]
    for part in qualname.split("."):
        value = getattr(value, part)
    return value


_MISSING = object()


def find_global(module: Any, qualname: Any) -> Any:
    """The global of an importable module, or `_MISSING`."""
    if type(module) is not str or type(qualname) is not str or module in ("__main__", "__mp_main__"):
        return _MISSING
    value: Any = sys.modules.get(module)
    if value is None or not importable(value) or "<locals>" in qualname:
        return _MISSING
    try:
        for part in qualname.split("."):
            value = getattr(value, part)
    except BaseException:
        return _MISSING
    return value


def is_global(thing: Any) -> bool:
    """Whether its module and name lead to this object."""
    try:
        return find_global(thing.__module__, thing.__qualname__) is thing
    except BaseException:
        return False
