"""Native capabilities, registered by code: objects with a name and describe(), or functions."""

from __future__ import annotations

import inspect
import json
import keyword
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from quire.tool_descriptions import tools
from quire.worker.capabilities import plain_values, signatures
from quire.worker.capabilities.errors import ToolError

NAMESPACE_KEY = "__capabilities__"  # the variable that holds them, so that snapshots keep them
APPROVE = ("never", "ask", "always")
_NEW_WORDS = {"allow": "never", "ask_or_deny": "always"}  # as settings say it; snapshots and messages have the others
_MAX_ABOUT_CHARS = 4_000  # characters
_MAX_METHODS = 100
_EXAMPLE = (
    "class Notes:\n"
    '    name = "notes"\n'
    '    def describe(self): return "Keeps notes."\n'
    "    def add(self, text: str) -> int: ...\n"
    "register_capability(Notes())"
)


class Hub(Protocol):
    """What native capabilities need."""

    caps: Any

    def ask(self, do: str, **words: Any) -> dict[str, Any]: ...

    async def ask_async(self, do: str, **words: Any) -> dict[str, Any]: ...

    def is_taken(self, name: str) -> str:
        """Why the name cannot be used, or ""."""


class Registry:
    """The native capabilities by name: {value, approve, expose, about, methods}. Kept in a variable of the notebook."""

    def __init__(self, hub: Hub, namespace: dict[str, Any]) -> None:
        self.hub = hub
        self.changes = 0
        self._namespace = namespace
        self.entries: dict[str, dict[str, Any]] = {}

    def put(self) -> None:
        """Set the variable, or delete it if there are no capabilities."""
        if self.entries:
            if self._namespace.get(NAMESPACE_KEY) is not self.entries:
                self._namespace[NAMESPACE_KEY] = self.entries
        else:
            self._namespace.pop(NAMESPACE_KEY, None)

    def adopt(self) -> None:
        """Take over the capabilities in loaded variables."""
        found = self._namespace.get(NAMESPACE_KEY)
        whole = found if type(found) is dict else {}
        self.entries = {name: entry for name, entry in whole.items() if _is_entry(name, entry)}
        self.changes += 1
        self.put()

    def add(self, name: str, value: Any, about: str, methods: list[dict[str, Any]], approve: str, expose: bool) -> None:
        approve = _NEW_WORDS.get(approve, approve)
        if approve not in APPROVE:
            raise ValueError(f"approve= is one of {', '.join(map(repr, APPROVE))}, not {approve!r}.")
        _check_name(name, self.hub.is_taken(name))
        entry = {"value": value, "approve": approve, "expose": bool(expose), "about": about, "methods": methods}
        self.entries[name] = entry
        self.changes += 1
        self.put()

    def remove(self, name: str) -> None:
        del self.entries[name]
        self.changes += 1
        self.put()

    def told(self) -> list[dict[str, Any]]:
        """The capabilities as sent to the server."""
        words = ("about", "approve", "expose", "methods")
        return [{"name": name, **{word: entry[word] for word in words}} for name, entry in self.entries.items()]

    def approved(self, name: str, method: str, given: dict[str, Any]) -> dict[str, Any] | None:
        """The request for approval of a call, or None if it needs none."""
        entry = self.entries.get(name)
        if entry is None or entry["approve"] == "never":
            return None
        sent = {key: _for_message(value) for key, value in given.items()}
        return {"capability": name, "method": method, "given": sent, "declared": entry["approve"]}


def _is_entry(name: Any, entry: Any) -> bool:
    wanted = {"value", "approve", "expose", "about", "methods"}
    return type(name) is str and type(entry) is dict and wanted <= entry.keys() and entry["approve"] in APPROVE


def _for_message(value: Any) -> Any:
    try:
        made = plain_values.to_json(value)
        return made if len(json.dumps(made)) <= _MAX_ABOUT_CHARS else repr(value)[:_MAX_ABOUT_CHARS]
    except (plain_values.NotJson, ValueError):
        return repr(value)[:_MAX_ABOUT_CHARS]


def _check_name(name: Any, taken: str) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        proposal = f"; {tools.python_name(name)!r} would be one" if isinstance(name, str) and name else ""
        raise ValueError(f"A capability's name is a Python name, and {name!r} is not{proposal}.")
    if keyword.iskeyword(name) or name.startswith("_"):
        raise ValueError(f"{name!r} cannot be a capability's name; {name.strip('_')}_cap could.")
    if taken:
        raise ValueError(taken)


def register(registry: Registry, obj: Any, *, approve: str = "never", expose: bool = False) -> Native:
    """Register an object with its public methods. Calls by name need approval; the object itself is unchanged."""
    missing = []
    if inspect.isclass(obj):
        raise TypeError(f"register_capability takes an object, and {obj.__name__} is a class: give {obj.__name__}().")
    if isinstance(obj, (Native, Function)):
        raise TypeError(f"{obj!r} is registered already.")
    name = getattr(obj, "name", None)
    if name is None:
        missing.append("an attribute `name`")
    describe = getattr(obj, "describe", None)
    if not callable(describe):
        missing.append("a method `describe()` that returns text")
    if missing:
        lacks = " and ".join(missing)
        raise TypeError(f"A {type(obj).__name__} lacks {lacks} to be a capability. For example:\n{_EXAMPLE}")
    _check_name(name, registry.hub.is_taken(str(name)))
    methods = [signatures.describe_function(method, getattr(obj, method)) for method in _public_methods(obj)]
    registry.add(str(name), obj, _description(describe, str(name)), methods[:_MAX_METHODS], approve, expose)
    return Native(registry, str(name))


def _public_methods(obj: Any) -> list[str]:
    """The public methods in source order. Properties are not evaluated."""
    own = [name for kind in reversed(type(obj).__mro__) for name in vars(kind)]
    names = dict.fromkeys([*own, *getattr(obj, "__dict__", ())])
    public = [name for name in names if not name.startswith("_") and name not in ("name", "describe")]
    fixed = [name for name in public if not isinstance(inspect.getattr_static(obj, name, None), property)]
    return [name for name in fixed if callable(getattr(obj, name, None))]


def _description(describe: Any, name: str) -> str:
    try:
        about = describe()
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise TypeError(f"describe() of {name} raised {what}. It is to return text.") from error
    if not isinstance(about, str) or not about.strip():
        raise TypeError(f"describe() of {name} returned {type(about).__name__}, and not text that says what it is.")
    return about[:_MAX_ABOUT_CHARS]


def register_function(registry: Registry, function: Any, *, approve: str, expose: bool, name: str) -> Function:
    """Register a function."""
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"@capability is for functions; {_EXAMPLE.splitlines()[-1]} is for objects.")
    called = name or getattr(function, "__name__", "")
    function = function._function if isinstance(function, Function) else function
    made = Function(registry, called, function)
    about = (inspect.getdoc(function) or f"{called}, a function of the notebook").strip()
    registry.add(
        called, made, about[:_MAX_ABOUT_CHARS], [signatures.describe_function(called, function)], approve, expose
    )
    return made


class _ApprovedCalls:
    """Makes calls that may need approval."""

    _registry: Registry

    def _call(self, name: str, method: str, function: Callable[..., Any], arguments: Any, named: Any) -> Any:
        words = self._registry.approved(name, method, signatures.bind_arguments(function, arguments, named))
        if words is None:
            return function(*arguments, **named)
        if inspect.iscoroutinefunction(function):
            return self._later(words, function, arguments, named)
        try:
            self._registry.hub.ask("approve", **words)
        except ToolError as error:
            raise _with_call(error, words) from None
        return function(*arguments, **named)

    async def _later(self, words: dict[str, Any], function: Callable[..., Any], arguments: Any, named: Any) -> Any:
        try:
            await self._registry.hub.ask_async("approve", **words)
        except ToolError as error:
            raise _with_call(error, words) from None
        return await function(*arguments, **named)


def _with_call(error: ToolError, words: dict[str, Any]) -> ToolError:
    name, method = words["capability"], words["method"]
    error.tool, error.args_given = name if method == name else f"{name}.{method}", words["given"]
    return error.with_traceback(None)


class Function(_ApprovedCalls):
    """A function that is a capability; called as before."""

    __module__ = "builtins"
    __qualname__ = "caps.Function"

    def __init__(self, registry: Registry, name: str, function: Any) -> None:
        self._registry = registry
        self._name = name
        self.__name__ = name
        self.__setstate__(function)

    def __setstate__(self, function: Any) -> None:
        self._function = function
        self.__doc__ = getattr(function, "__doc__", None)
        self.__wrapped__ = function

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        return self._call(self._name, self._name, self._function, arguments, named)

    def describe(self) -> str:
        return tools.documentation("", signatures.describe_function(self._name, self._function))

    def __getattr__(self, name: str) -> Any:
        if name == self.__dict__.get("_name"):
            return self  # as other capabilities, `name.name(...)` works
        raise AttributeError(f"{self.__dict__.get('_name')} has no {name!r}: it is a function, call it.")

    def __get__(self, owner: Any, kind: Any = None) -> Function:
        return self

    def __repr__(self) -> str:
        return f"<capability {signatures.signature_text(self._name, self._function)}>"

    def __reduce__(self) -> Any:
        return (self._registry.hub.caps._function, (self._name,), self._function)


class Native(_ApprovedCalls):
    """A registered object, found by its name on each use."""

    __module__ = "builtins"
    __qualname__ = "caps.Native"

    def __init__(self, registry: Registry, name: str) -> None:
        self._registry = registry
        self._name = name

    def _entry(self) -> dict[str, Any]:
        entry = self._registry.entries.get(self._name)
        if entry is None:
            raise AttributeError(f"{self._name} is not registered any more; register_capability(...) offers it again.")
        return entry

    def describe(self) -> str:
        entry = self._entry()
        return tools.overview({"name": self._name, "about": entry["about"], "tools": entry["methods"]})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        entry = self._entry()
        try:
            found = getattr(entry["value"], name)
        except AttributeError:
            _no_method(self._name, name, entry)
        if entry["approve"] == "never" or not callable(found):
            return found
        return Guarded(self, name, found)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._entry()["value"], name, value)

    def __dir__(self) -> list[str]:
        return [*(method["name"] for method in self._entry()["methods"]), "describe"]

    def __repr__(self) -> str:
        return self.describe() if self._name in self._registry.entries else f"<capability {self._name}, not registered>"

    def __reduce__(self) -> Any:
        return (self._registry.hub.caps._native, (self._name,))


def _no_method(name: str, method: str, entry: dict[str, Any]) -> NoReturn:
    known = ", ".join(method_["name"] for method_ in entry["methods"])
    raise AttributeError(f"{name} has no method {method!r}; it has {known or 'none'}.") from None


class Guarded:
    """A method of a registered object whose calls need approval."""

    __module__ = "builtins"

    def __init__(self, native: Native, name: str, function: Any) -> None:
        self._native = native
        self._function = function
        self.__name__ = name
        self.__doc__ = getattr(function, "__doc__", None)
        self.__wrapped__ = function

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        return self._native._call(self._native._name, self.__name__, self._function, arguments, named)

    def __repr__(self) -> str:
        return f"<{self._native._name}.{signatures.signature_text(self.__name__, self._function)}>"

    def __reduce__(self) -> Any:
        return (getattr, (self._native, self.__name__))
