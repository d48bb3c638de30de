"""Functions, cells and code: by reference if a module has them, else by value."""

from __future__ import annotations

import importlib.util
import marshal
import sys
import types
from collections.abc import Callable
from typing import Any

from quire.worker.snapshot import tombstones
from quire.worker.snapshot.modules import importable
from quire.worker.snapshot.reducers import (
    Context,
    NotSerializable,
    is_global,
    rebuilds,
    reduces,
    trial_loads,
)

_code_bytes, _code_from = marshal.dumps, marshal.loads
_MAGIC = importlib.util.MAGIC_NUMBER
_LAZY = sys.version_info >= (3, 14)  # annotations are computed lazily
_EMPTY = object()


class _Sources:
    """Source code of cells, set while loading."""

    find: Callable[[str], str | None] = staticmethod(lambda filename: None)
    compiled: dict[str, types.CodeType | None] = {}  # noqa: RUF012 - emptied by the loader


def read_sources(find: Callable[[str], str | None]) -> None:
    _Sources.find = staticmethod(find)
    _Sources.compiled = {}


@reduces(types.FunctionType)
def reduce_function(context: Context, function: types.FunctionType) -> Any:
    if is_global(function):
        return NotImplemented
    arguments = (function.__code__, globals_of(context, function), function.__name__, function.__closure__)
    return (make_function, arguments, _state(function), None, None, fill_function)


def _state(function: types.FunctionType) -> dict[str, Any]:
    state: dict[str, Any] = {
        "defaults": function.__defaults__,
        "kwdefaults": function.__kwdefaults__,
        "dict": function.__dict__,
        "doc": function.__doc__,
        "module": function.__module__,
        "qualname": function.__qualname__,
        "type_params": getattr(function, "__type_params__", ()),
    }
    lazy = getattr(function, "__annotate__", None) if _LAZY else None
    state["annotate" if lazy else "annotations"] = lazy or function.__annotations__
    if state["doc"] == (function.__code__.co_consts or (None,))[0]:
        del state["doc"]
    return {key: value for key, value in state.items() if value not in (None, (), {}) or key in ("doc", "module")}


@rebuilds
def make_function(code: Any, scope: dict[str, Any], name: str, closure: Any) -> Any:
    if tombstones.is_tombstone(code):
        return code
    return types.FunctionType(code, scope, name, None, closure)


@rebuilds
def fill_function(function: Any, state: dict[str, Any]) -> None:
    if tombstones.is_tombstone(function):
        return
    for key, value in state.items():
        if key == "dict":
            function.__dict__.update(value)
        else:
            setattr(function, f"__{key}__", value)


def globals_of(context: Context, function: types.FunctionType) -> Any:
    """Globals by reference to the namespace or module, if possible."""
    scope = function.__globals__
    if scope is context.namespace:
        return scope
    module = context.dynamic.get(id(scope)) or sys.modules.get(scope.get("__name__", ""))
    if module is not None and getattr(module, "__dict__", None) is scope:
        return context.kept.setdefault(("scope", id(scope)), Scope(module))
    return scope


class Scope:
    """Stands in the stream for the dict of a module."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module


@reduces(Scope)
def reduce_scope(context: Context, scope: Scope) -> Any:
    return (scope_of, (scope.module,))


@rebuilds
def scope_of(module: Any) -> Any:
    return {} if tombstones.is_tombstone(module) else module.__dict__


class Attributes:
    """Stands in the stream for the `__dict__` of an object."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner


@reduces(Attributes)
def reduce_attributes(context: Context, attributes: Attributes) -> Any:
    return (attributes_of, (attributes.owner,))


@rebuilds
def attributes_of(owner: Any) -> Any:
    return owner if tombstones.is_tombstone(owner) else object.__getattribute__(owner, "__dict__")


# Cells


@reduces(types.CellType)
def reduce_cell(context: Context, cell: types.CellType) -> Any:
    try:
        content = (cell.cell_contents,)
    except ValueError:
        return (make_cell, ())
    return (make_cell, (), content, None, None, fill_cell)


@rebuilds
def make_cell() -> types.CellType:
    return types.CellType()


@rebuilds
def fill_cell(cell: types.CellType, content: tuple[Any]) -> None:
    cell.cell_contents = content[0]


# Code


@reduces(types.CodeType)
def reduce_code(context: Context, code: types.CodeType) -> Any:
    place = (code.co_filename, code.co_qualname, code.co_firstlineno)
    return (make_code, (_MAGIC, _code_bytes(code), *place))


@rebuilds
def make_code(magic: bytes, marshalled: bytes, filename: str, qualname: str, line: int) -> Any:
    if magic == _MAGIC:
        return _code_from(marshalled)
    code = _compiled(filename)
    found = code and _find(code, qualname, line)
    why = f"this Python cannot read its code, and {filename} is not known"
    return found or tombstones.lost_on_load("a function", why)


def _compiled(filename: str) -> types.CodeType | None:
    if filename not in _Sources.compiled:
        source = _Sources.find(filename)
        code = None
        if source is not None:
            try:
                code = compile(source, filename, "exec", 0x2000, dont_inherit=True)  # top-level await, as cells have
            except (SyntaxError, ValueError):
                code = None
        _Sources.compiled[filename] = code
    return _Sources.compiled[filename]


def _find(code: types.CodeType, qualname: str, line: int) -> types.CodeType | None:
    if code.co_qualname == qualname and code.co_firstlineno == line:
        return code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found = _find(const, qualname, line)
            if found is not None:
                return found
    return None


# Methods, descriptors and modules


@reduces(types.MethodType)
def reduce_method(context: Context, method: types.MethodType) -> Any:
    owner: Any = sys.modules.get(getattr(type(method.__self__), "__module__", ""))
    if owner is not None and importable(owner) and owner.__dict__.get(method.__name__) == method:
        from_module = owner.__dict__[method.__name__]
        if from_module.__self__ is method.__self__:  # such as random.randint
            return (attribute_of, (owner, method.__name__))
    return (make_method, (method.__func__, method.__self__))


@rebuilds
def make_method(function: Any, owner: Any) -> Any:
    for part in (function, owner):
        if tombstones.is_tombstone(part):
            return part
    return types.MethodType(function, owner)


@reduces(types.BuiltinMethodType, types.MethodWrapperType)
def reduce_builtin(context: Context, function: Any) -> Any:
    owner, name = function.__self__, function.__name__
    if owner is None or isinstance(owner, types.ModuleType):
        if is_global(function):
            return NotImplemented
        if getattr(owner, name, None) is function:
            return (attribute_of, (owner, name))
        raise NotSerializable("a built-in function", "its module does not have it")
    if getattr(owner, name, None) != function:
        raise NotSerializable("a built-in method", "its object does not have it")
    return (attribute_of, (owner, name))


@reduces(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
@reduces(types.GetSetDescriptorType, types.MemberDescriptorType)
def reduce_descriptor(context: Context, descriptor: Any) -> Any:
    return (descriptor_of, (descriptor.__objclass__, descriptor.__name__))


@rebuilds
def descriptor_of(kind: type, name: str) -> Any:
    return kind.__dict__[name]


@rebuilds
def attribute_of(thing: Any, name: str) -> Any:
    return thing if tombstones.is_tombstone(thing) else getattr(thing, name)


@reduces(staticmethod, classmethod)
def reduce_bound(context: Context, wrapper: Any) -> Any:
    return (type(wrapper), (wrapper.__func__,))


@reduces(property, derived=True)
def reduce_property(context: Context, prop: property) -> Any:
    arguments = (prop.fget, prop.fset, prop.fdel, prop.__doc__)
    return (type(prop), arguments, getattr(prop, "__dict__", None) or None)


@reduces(types.ModuleType, derived=True)
def reduce_module(context: Context, module: types.ModuleType) -> Any:
    if module.__dict__ is context.namespace:
        return (main_module, (context.namespace,))
    name = getattr(module, "__name__", None)
    if type(name) is str and sys.modules.get(name) is module and importable(module):
        return (import_module, (name,))
    context.dynamic[id(module.__dict__)] = module
    content = {key: value for key, value in module.__dict__.items() if key not in ("__builtins__", "__loader__")}
    return (make_module, (type(module), str(name)), content, None, None, fill_module)


@rebuilds
def import_module(name: str) -> Any:
    try:
        __import__(name)
        return sys.modules[name]
    except BaseException as error:
        return tombstones.lost_on_load(f"module {name}", f"it cannot be imported here: {error}")


@rebuilds
def main_module(namespace: dict[str, Any]) -> Any:
    for module in (sys.modules.get("__main__"), namespace.get("__quire_main__")):
        if getattr(module, "__dict__", None) is namespace:
            return module
    if trial_loads:
        return sys.modules.get("__main__")
    return tombstones.lost_on_load("module __main__", "another one has its place")


@rebuilds
def make_module(kind: type, name: str) -> Any:
    return types.ModuleType.__new__(kind, name)  # type: ignore[call-arg]


@rebuilds
def fill_module(module: Any, content: dict[str, Any]) -> None:
    module.__dict__.update(content)
