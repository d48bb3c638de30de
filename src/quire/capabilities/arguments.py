"""Check the arguments of a call against the JSON Schema of the tool before it is sent.

A schema comes from a backend, so it may be hostile. Before `jsonschema` sees it, it is copied with only the keywords
listed here, at the places where they count. So nothing is ever fetched (`$ref` is looked up in the schema itself, and
`$id` and `$schema` are left out), a malformed keyword is ignored, and a schema that is too large is not checked. The
check has a limited number of steps. What is not checked is left to the backend, which checks its arguments itself.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jsonschema
from jsonschema.validators import Draft202012Validator, create

from quire.core.capabilities.model import Offered
from quire.core.errors import WrongArguments
from quire.tool_descriptions import schemas

_MAX_SCHEMA_SIZE = 20_000  # values of a schema, each 100 characters of text counted as another
_MAX_SCHEMA_DEPTH = 100
_MAX_STEPS = 50_000  # of one check
_MAX_PATTERN = 1_000  # characters of a regular expression
_MAX_MATCHING_STEPS = 1_000_000  # of a regular expression on one text, at worst
_MAX_SHOWN = 60  # characters of a value in a message
_MAX_SHOWN_CHOICES = 20
_CHARS_PER_STEP = 100
_MATCHING_STEPS_PER_STEP = 25  # of about the same duration
_CHARS_PER_MATCHING_STEP = 10  # of a pattern, which a try may compare

_ARTICLES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "null": "null",
    "array": "an array",
    "object": "an object",
}
_LIMITS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
}
_SIZES = {
    "minLength": ("at least", "character"),
    "maxLength": ("at most", "character"),
    "minItems": ("at least", "item"),
    "maxItems": ("at most", "item"),
    "minProperties": ("at least", "key"),
    "maxProperties": ("at most", "key"),
}

_steps_left: ContextVar[int] = ContextVar("steps_left")


class _TooManySteps(Exception):
    """The rest of the arguments is not checked."""


class _TooLarge(Exception):
    """The schema is not used."""


class ArgumentChecks:
    """The schemas of one backend's tools. Each is prepared when its tool is first called."""

    def __init__(self, offered: Offered) -> None:
        self._schemas = {tool.name: tool.input for tool in offered.tools}
        self._validators: dict[str, Any] = {}

    def check(self, tool: str, arguments: dict[str, Any]) -> None:
        """Raises WrongArguments with the first value that does not fit."""
        if tool not in self._validators:
            self._validators[tool] = _validator(self._schemas.get(tool))
        token = _steps_left.set(_MAX_STEPS)
        try:
            error = next(self._validators[tool].iter_errors(arguments), None)
        except (_TooManySteps, RecursionError):
            return
        finally:
            _steps_left.reset(token)
        if error is not None:
            raise _explained(error)


def _validator(schema: Any) -> Any:
    try:
        return _Validator(_Copy(schema).copy(schema))
    except (_TooLarge, RecursionError):
        return _Validator(True)


# Schemas reduced to safe keywords


class _Copy:
    """Copies a schema with the keywords that are checked. A reference is replaced by the copy of what it refers to."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = _MAX_SCHEMA_SIZE
        self._targets: dict[str, dict[str, Any]] = {}  # by reference

    def copy(self, schema: Any, depth: int = 0) -> Any:
        """A dict, or a bool."""
        self._spend(1)
        if depth > _MAX_SCHEMA_DEPTH:
            raise _TooLarge
        if not isinstance(schema, dict):
            return schema is not False
        copied: dict[str, Any] = {}
        for keyword, value in schema.items():
            if keyword in _IS_VALID and _IS_VALID[keyword](value):
                self._spend(_size(value))
                copied[keyword] = value
            elif keyword == "pattern" and isinstance(value, str):
                self._spend(len(value))  # it takes long to compile
                copied.update(_compiled(value))
            elif keyword == "$ref" and isinstance(value, str):
                copied[keyword] = self._target(value, depth)
            elif keyword == "properties" and isinstance(value, dict):
                copied[keyword] = {name: self.copy(property_, depth + 1) for name, property_ in value.items()}
            elif keyword in ("prefixItems", "allOf", "anyOf", "oneOf") and isinstance(value, list) and value:
                copied[keyword] = [self.copy(part, depth + 1) for part in value]
            elif keyword in ("items", "additionalProperties") and isinstance(value, (dict, bool)):
                copied[keyword] = self.copy(value, depth + 1)
        if schema.keys() & {"patternProperties", "$ref"}:  # these may allow properties that are not listed here
            copied.pop("additionalProperties", None)
        return copied

    def _target(self, reference: str, depth: int) -> dict[str, Any]:
        """What it refers to within the schema; {} if there is no such place."""
        if reference not in self._targets:
            self._targets[reference] = {}  # which it may refer to itself
            copied = self.copy(schemas.resolve_reference(reference, self._root), depth + 1)
            self._targets[reference].update(copied if isinstance(copied, dict) else {"allOf": [copied]})
        return self._targets[reference]

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _TooLarge


def _size(value: Any) -> int:
    """How many values it has, each 100 characters of text counted as another."""
    if isinstance(value, dict):
        return 1 + sum(_size(name) + _size(item) for name, item in value.items())
    if isinstance(value, list):
        return 1 + sum(map(_size, value))
    return 1 + len(value) // _CHARS_PER_STEP if isinstance(value, str) else 1


def _is_count(value: Any) -> bool:
    return type(value) is int


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_type(value: Any) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return bool(kinds) and all(isinstance(kind, str) and kind in _ARTICLES for kind in kinds)


_IS_VALID: dict[str, Callable[[Any], bool]] = {
    "type": _is_type,
    "enum": lambda value: isinstance(value, list) and bool(value),
    "const": lambda value: True,
    "required": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "multipleOf": lambda value: type(value) is int and value > 0,
    "nullable": lambda value: value is True,
    **dict.fromkeys(_LIMITS, _is_number),
    **dict.fromkeys(_SIZES, _is_count),
}
"""Keywords with a plain value, and whether a value is one of theirs."""


# Regular expressions

_TOKEN = re.compile(
    r"""
      (?P<refused> \\[1-9] | \(\?(?!:) | \)(?:[*+?]|\{\d*,?\d*\}) )  # back references, lookaround, repeated groups
    | (?P<repeat> [*+?] | \{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\} ) [?+]?
    | (?P<choice> \| )
    | \\. | \[\^?\]?(?:\\.|[^\]\\])*\] | .
    """,
    re.VERBOSE | re.DOTALL,
)


def matching_steps(pattern: str, length: int) -> int:
    """At most so many steps are tried to match a text of that length; 0 if the number is unknown.

    Each part that may match in several ways multiplies the number of tries. A repeated group could make it
    exponential, so a pattern with one is never used.
    """
    starts = 1 if pattern.startswith("^") and "|" not in pattern else length + 1
    steps = starts * (len(pattern) // _CHARS_PER_MATCHING_STEP + 1)
    for token in _TOKEN.finditer(pattern):
        if token["refused"]:
            return 0
        if token["choice"] or token["repeat"] == "?":
            steps *= 2
        elif token["repeat"]:
            is_fixed = token["least"] and not token["comma"]
            steps *= 1 if is_fixed else length + 1
        if steps > _MAX_MATCHING_STEPS:
            return 0
    return steps


def _compiled(pattern: str) -> dict[str, re.Pattern[str]]:
    if len(pattern) <= _MAX_PATTERN and matching_steps(pattern, 1):
        with contextlib.suppress(re.error, OverflowError, RecursionError):  # a regular expression of another language
            return {"pattern": re.compile(pattern)}
    return {}


def _pattern(validator: Any, pattern: re.Pattern[str], instance: Any, schema: dict[str, Any]) -> Iterator[Any]:
    if isinstance(instance, str) and (steps := matching_steps(pattern.pattern, len(instance))):
        _spend_steps(steps // _MATCHING_STEPS_PER_STEP)
        if not pattern.search(instance):
            yield jsonschema.ValidationError("does not match the pattern")


# The validator


def _spend_steps(steps: int) -> None:
    left = _steps_left.get() - steps
    _steps_left.set(left)
    if left < 0:
        raise _TooManySteps


def _cost(value: Any) -> int:
    return len(value) if isinstance(value, (list, dict)) else 0


def _counted(keyword: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a keyword, which spends steps by the size of what it looks at."""
    size = _size if keyword in ("enum", "const") else _cost

    def check(validator: Any, value: Any, instance: Any, schema: dict[str, Any]) -> Iterator[Any]:
        if instance is None and schema.get("nullable"):
            return
        _spend_steps(1 + size(value) + _cost(instance))
        for error in function(validator, value, instance, schema) or ():
            _spend_steps(1 + len(error.message) // _CHARS_PER_STEP)  # the message quotes the value
            yield error

    return check


def _referred(validator: Any, target: dict[str, Any], instance: Any, schema: dict[str, Any]) -> Any:
    return validator.descend(instance, target)


_LIBRARY = Draft202012Validator.VALIDATORS
_FUNCTIONS = {
    **{
        keyword: _LIBRARY[keyword]
        for keyword in (
            "type", "enum", "const", *_LIMITS, "multipleOf", *_SIZES, "required", "items", "prefixItems", "properties",
            "additionalProperties", "allOf", "anyOf",
        )
    },
    "oneOf": _LIBRARY["anyOf"],  # generators write oneOf for alternatives that overlap: an integer and a number
    "pattern": _pattern,
    "$ref": _referred,
}  # fmt: skip
_Validator = create(
    meta_schema={},
    validators={keyword: _counted(keyword, function) for keyword, function in _FUNCTIONS.items()},
    type_checker=Draft202012Validator.TYPE_CHECKER,
)


# Error messages


def _explained(error: Any) -> WrongArguments:
    path, keyword, limit, value = tuple(error.absolute_path), error.validator, error.validator_value, error.instance
    if keyword in ("anyOf", "oneOf"):
        return _explained_alternatives(error)
    if keyword is None:
        return WrongArguments(path, "is not allowed")
    if keyword == "type":
        kinds = [limit] if isinstance(limit, str) else limit
        types = " or ".join(_ARTICLES[kind] for kind in kinds)
        return WrongArguments(path, f"must be {types}, not {_shown(value)}", is_type=True)
    if keyword == "enum":
        more = ", ..." if len(limit) > _MAX_SHOWN_CHOICES else ""
        choices = ", ".join(map(repr, limit[:_MAX_SHOWN_CHOICES]))
        return WrongArguments(path, f"must be one of {choices}{more}, not {_shown(value)}")
    if keyword == "const":
        return WrongArguments(path, f"must be {limit!r}, not {_shown(value)}")
    if keyword == "pattern":
        return WrongArguments(path, f"must match the pattern {limit.pattern}, and {_shown(value)} does not")
    if keyword == "multipleOf":
        return WrongArguments(path, f"must be a multiple of {limit}, not {_shown(value)}")
    if keyword in _LIMITS:
        return WrongArguments(path, f"must be {_LIMITS[keyword]} {limit}, not {_shown(value)}")
    if keyword in _SIZES:
        which, unit = _SIZES[keyword]
        return WrongArguments(path, f"must have {which} {limit} {unit}{'s' * (limit != 1)}, not {len(value):,}")
    if keyword == "required":
        return WrongArguments(path, f"lacks {', '.join(repr(name) for name in limit if name not in value)}")
    if keyword == "items":
        return WrongArguments(path, f"has {len(value):,} items, more than are allowed")
    known = error.schema.get("properties", {})  # additionalProperties
    unknown = next(name for name in value if name not in known)
    return WrongArguments((*path, unknown), f"is not known; there are {', '.join(map(repr, known)) or 'none'}")


def _explained_alternatives(error: Any) -> WrongArguments:
    """The deepest error among the alternatives; if no alternative has the right type, all their types."""
    path = tuple(error.absolute_path)
    first = {error_.relative_schema_path[0]: error_ for error_ in reversed(error.context)}
    found = [_explained(first[index]) for index in sorted(first)]
    deepest = max(found, key=lambda wrong: (len(wrong.path), not wrong.is_type))
    if len(deepest.path) > len(path) or not deepest.is_type:
        return deepest
    musts = dict.fromkeys(wrong.what.partition(", not ")[0].removeprefix("must be ") for wrong in found)
    return WrongArguments(path, f"must be {' or '.join(musts)}, not {_shown(error.instance)}", is_type=True)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
