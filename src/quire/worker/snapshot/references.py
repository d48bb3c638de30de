"""Objects that are attributes of library modules are saved by reference, not copied."""

from __future__ import annotations

from typing import Any

from quire.worker.snapshot import modules
from quire.worker.snapshot.reducers import (
    SAFE,
    Context,
    Rule,
    module_of,
    named,
    qualified_type_name,
    rebuilds,
    reduce_itself,
    reduces,
    rule_for,
    with_article,
)


def find_rule(context: Context, kind: type) -> Rule | None:
    """The rule for a type, which first checks for attributes of its library."""
    rule = rule_for(kind)
    if (rule is None and id(kind) not in SAFE) or rule is reduce_itself:
        references = _references(context, kind)
        if references:
            return _ReferenceRule(references, rule)
    return rule


def _references(context: Context, kind: type) -> dict[int, tuple[str, str]]:
    """Objects of this type that are attributes of its library: id -> module and name."""
    found: dict[int, tuple[str, str]] = {}
    if module_of(kind) == "builtins" or issubclass(kind, type):
        return found
    for name, module in modules.library_modules(module_of(kind)):
        index = context.kept.get(("held", name))
        if index is None:
            index = context.kept["held", name] = modules.attributes_by_type(module)
        found.update((key, (name, attribute)) for key, attribute in index.get(id(kind), {}).items())
    return found


class _ReferenceRule:
    def __init__(self, references: dict[int, tuple[str, str]], rule: Rule | None) -> None:
        self._references = references
        self._rule = rule

    def __call__(self, context: Context, thing: Any) -> Any:
        place = self._references.get(id(thing))
        if place is not None and not modules.is_rebound(*place):
            return (held, (*place, qualified_type_name(type(thing))))
        return NotImplemented if self._rule is None else self._rule(context, thing)


@reduces(object)
def reduce_mark(context: Context, mark: object) -> Any:
    """An `object()`: a sentinel of a module is saved by reference."""
    marks = context.kept.get("marks")
    if marks is None:
        marks = context.kept["marks"] = modules.sentinel_objects()
    return (held, (*marks[id(mark)], "builtins.object")) if id(mark) in marks else (object, ())


@rebuilds
def held(module: str, name: str, kind: str) -> Any:
    """An attribute of a module. Raises TypeError if it has another type now."""
    thing = named(module, name)
    if qualified_type_name(type(thing)) != kind:
        raise TypeError(f"{module}.{name} is {with_article(thing)} here")
    return thing
