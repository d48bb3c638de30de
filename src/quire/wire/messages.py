"""Requests to a worker and events from it, as frozen dataclasses whose fields are checked on arrival.

A message is sent as its class name, its fields as JSON, and its bytes beside them. A worker may be hostile, so `parse`
raises `BadMessage` for anything unexpected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, get_args

VERSION = 2
INTERRUPTS_BYTES = 8  # size of the interrupt count at the start of the lock file

Bundle = dict[str, str | bytes]
"""A MIME bundle: text as str, binary as bytes."""


class BadMessage(ValueError):
    """A complete frame that is not a valid message."""


def is_type(*types: type) -> Callable[[Any], bool]:
    """A check that the value is exactly of one of these types."""
    return lambda value: type(value) in types  # not isinstance: a bool is an int


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_bundle(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(item, (str, bytes)) for key, item in value.items()
    )


def is_bundle_list(value: Any) -> bool:
    return isinstance(value, list) and all(is_bundle(item) for item in value)


def _is_named_list(value: Any, below: str = "") -> bool:
    """A list of named objects, each of which has another such list under the key `below`, if given."""
    return isinstance(value, list) and all(
        isinstance(item, dict) and isinstance(item.get("name"), str) and (not below or _is_named_list(item.get(below)))
        for item in value
    )


def is_shallow(value: Any, depth: int = 50) -> bool:
    """Whether JSON is nested at most `depth` levels deep."""
    level = _containers([value])
    for _ in range(depth):
        if not level:
            return True
        level = _containers(
            item for nested in level for item in (nested.values() if isinstance(nested, dict) else nested)
        )
    return not level


def _containers(items: Iterable[Any]) -> list[Any]:
    """The distinct containers among the items."""
    return list({id(item): item for item in items if isinstance(item, (dict, list, tuple))}.values())


def is_json_object(value: Any) -> bool:
    return type(value) is dict and is_shallow(value)


def _is_json_list(value: Any) -> bool:
    return type(value) is list and is_shallow(value)


def _is_capability_list(value: Any) -> bool:
    return _is_named_list(value, "methods") and is_shallow(value)


def checked_field(check: Callable[[Any], bool], **given: Any) -> Any:
    """A field of a message, with the check of its value."""
    return field(metadata={"check": check}, **given)


# Requests: parent to worker


@dataclass(frozen=True, kw_only=True)
class Run:
    """Execute `code`, called `name` in tracebacks. Answered by any number of events and one Finished."""

    run: str = checked_field(is_type(str))
    code: str = checked_field(is_type(str))
    name: str = checked_field(is_type(str))
    count: int = checked_field(is_type(int), default=0)  # execution count, the n of Out[n]


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Describe the namespace. Answered by Inspected."""


@dataclass(frozen=True, kw_only=True)
class Read:
    """Read one variable. Answered by Value."""

    name: str = checked_field(is_type(str))


@dataclass(frozen=True, kw_only=True)
class Page:
    """Read rows of a displayed table. Answered by Paged."""

    table: str = checked_field(is_type(str))
    start: int = checked_field(is_type(int))
    rows: int = checked_field(is_type(int))


@dataclass(frozen=True, kw_only=True)
class Enter:
    """Set up folder, limits (0: none) and environment. The first request, sent once. Answered by Entered."""

    workspace: str = checked_field(is_type(str))
    memory: int = checked_field(is_type(int), default=0)  # bytes of data per process
    cpu: float = checked_field(is_type(int, float), default=0)  # seconds of processor time per run
    ipython: bool = checked_field(is_type(bool), default=False)  # IPython runs every cell
    ipython_folder: str = checked_field(is_type(str), default="")  # IPython for environments without it
    venv: str = checked_field(is_type(str), default="")  # environment to import from; default: the interpreter's
    environ: dict[str, str] = checked_field(is_bundle, default_factory=dict)  # variables to set
    proxied: bool = checked_field(is_type(bool), default=False)  # network access only through the proxy in `environ`
    no_index: list[str] = checked_field(_is_text_list, default_factory=list)  # package index hosts that are not allowed
    sandbox: dict[str, Any] = checked_field(
        is_type(dict), default_factory=dict
    )  # see worker/sandbox/apply.py; {}: none


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The installed capabilities, each {name, about, tools, resources, prompts}. Not answered.

    A tool is {name, description, input, output, hints}, as its server declares it.
    """

    catalog: list[dict[str, Any]] = checked_field(_is_json_list)
    hidden: list[str] = checked_field(_is_text_list, default_factory=list)  # environment variables with their secrets


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Fork a sleeping copy of the process. Answered by Checkpointed."""

    name: str = checked_field(is_type(str))


@dataclass(frozen=True, kw_only=True)
class Load:
    """Load the snapshot the process was started with. Answered by Loaded."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to Asked as [line], or [] and the reason."""

    question: int = checked_field(is_type(int))
    line: list[str] = checked_field(_is_text_list)
    why: str = checked_field(is_type(str), default="")


Request = Enter | Load | Offer | Run | Inspect | Read | Page | Checkpoint | Answer

# Events: worker to parent


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The worker accepts requests."""

    version: int = checked_field(is_type(int))
    python: str = checked_field(is_type(str))


@dataclass(frozen=True, kw_only=True)
class Printed:
    """Bytes written to stdout or stderr."""

    stream: str = checked_field(lambda value: value in ("stdout", "stderr"))
    data: bytes = checked_field(is_type(bytes))


@dataclass(frozen=True, kw_only=True)
class Displayed:
    """A displayed object: `kind` is the output type, `result` marks the value of the last expression.

    With `update` it replaces all displays with its `display_id`, in any cell. `metadata` is that of the document,
    `about` holds further facts: source, table.
    """

    kind: str = checked_field(lambda value: value in ("execute_result", "image", "html", "dataframe"))
    bundle: Bundle = checked_field(is_bundle)
    metadata: dict[str, Any] = checked_field(is_json_object, default_factory=dict)
    about: dict[str, str] = checked_field(is_bundle, default_factory=dict)
    result: bool = checked_field(is_type(bool), default=False)
    display_id: str = checked_field(is_type(str), default="")
    update: bool = checked_field(is_type(bool), default=False)


@dataclass(frozen=True, kw_only=True)
class Cleared:
    """Clear the output of the cell: at once, or with `wait` when the next output arrives."""

    wait: bool = checked_field(is_type(bool), default=False)


@dataclass(frozen=True, kw_only=True)
class Raised:
    """The cell raised. The traceback shows its source, without frames of Quire."""

    name: str = checked_field(is_type(str))
    message: str = checked_field(is_type(str))
    traceback: str = checked_field(is_type(str))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The code waits for a line of input. Answered by Answer."""

    question: int = checked_field(is_type(int))  # counted from 1
    prompt: str = checked_field(is_type(str))


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The run ended. `value` is [the last expression's value] if it is JSON, else []."""

    run: str = checked_field(is_type(str))
    outcome: str = checked_field(lambda value: value in ("success", "error", "interrupted"))
    value: list[Any] = checked_field(_is_json_list, default_factory=list)
    imports: list[str] = checked_field(_is_text_list, default_factory=list)
    functions: list[str] = checked_field(_is_text_list, default_factory=list)
    count: int = checked_field(is_type(int), default=0)  # execution count, from a kernel that counts itself


@dataclass(frozen=True, kw_only=True)
class Entered:
    """Enter succeeded, or `why_not`: then the kernel must not run anything."""

    why_not: str = checked_field(is_type(str), default="")


@dataclass(frozen=True, kw_only=True)
class Native:
    """The capabilities the code has registered, sent when they change: each {name, about, approve, expose, methods}.

    A method is {name, signature, description, input}: input is a JSON Schema of its parameters.
    """

    capabilities: list[dict[str, Any]] = checked_field(_is_capability_list)


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """The namespace: variables by name with type and size, functions with signature and docstring."""

    variables: dict[str, str] = checked_field(is_bundle)
    functions: list[dict[str, str]] = checked_field(is_bundle_list)


@dataclass(frozen=True, kw_only=True)
class Value:
    """One variable: [value] if it is JSON, else [] and a description, or why its value is missing."""

    value: list[Any] = checked_field(_is_json_list)
    what: str = checked_field(is_type(str))


@dataclass(frozen=True, kw_only=True)
class Paged:
    """Rows of a table as text and the total number of rows, or why there are none."""

    text: str = checked_field(is_type(str), default="")
    total: int = checked_field(is_type(int), default=0)
    why_not: str = checked_field(is_type(str), default="")


@dataclass(frozen=True, kw_only=True)
class Checkpointed:
    """A copy was made, or why not; its quality, and what it lacks."""

    name: str = checked_field(is_type(str))
    why_not: str = checked_field(is_type(str), default="")
    quality: str = checked_field(lambda value: value in ("clean", "degraded", "hostile"), default="clean")
    lost: list[str] = checked_field(_is_text_list, default_factory=list)
    faults: int = checked_field(is_type(int), default=0)  # page faults of this process so far
    seconds: float = checked_field(is_type(int, float), default=0)  # processor time spent


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The snapshot was loaded, or why not; what was lost, and notes on what differs."""

    why_not: str = checked_field(is_type(str), default="")
    variables: int = checked_field(is_type(int), default=0)
    lost: list[dict[str, str]] = checked_field(is_bundle_list, default_factory=list)  # name, what, why, run
    notes: list[str] = checked_field(_is_text_list, default_factory=list)
    seconds: float = checked_field(is_type(int, float), default=0)


Event = (
    Ready
    | Printed
    | Displayed
    | Cleared
    | Raised
    | Asked
    | Finished
    | Entered
    | Native
    | Inspected
    | Value
    | Paged
    | Checkpointed
    | Loaded
)

REQUESTS: dict[str, type] = {kind.__name__: kind for kind in get_args(Request)}
EVENTS: dict[str, type] = {kind.__name__: kind for kind in get_args(Event)}


_FieldList = tuple[tuple[str, bool, Callable[[Any], bool], Any], ...]
_known_fields: dict[type, _FieldList] = {}


def _fields_of(kind: type) -> _FieldList:
    """Name, whether it is bytes, check and default of each field; cached, since every message needs it."""
    if kind not in _known_fields:
        _known_fields[kind] = tuple(
            (field_.name, field_.type == "bytes", field_.metadata["check"], _default(field_)) for field_ in fields(kind)
        )
    return _known_fields[kind]


def _default(field_: Field[Any]) -> Any:
    return field_.default if field_.default_factory is MISSING else field_.default_factory()


def dump(message: Any) -> tuple[dict[str, Any], list[bytes]]:
    """A message as JSON header and attached bytes; `{"$": n}` stands for the n-th attachment."""
    parts: list[bytes] = []

    def lift(value: bytes) -> dict[str, int]:
        parts.append(value)
        return {"$": len(parts) - 1}

    fields_: dict[str, Any] = {}
    for name, is_bytes, _, unsaid in _fields_of(type(message)):
        value = getattr(message, name)
        if value == unsaid:
            continue
        if name == "bundle":
            value = {key: lift(item) if isinstance(item, bytes) else item for key, item in value.items()}
        elif name == "metadata" and not is_shallow(value):
            raise BadMessage("metadata is nested too deeply to be shown")
        fields_[name] = lift(value) if is_bytes else value
    return {"say": type(message).__name__, "with": fields_}, parts


def parse(words: dict[str, type], header: Any, parts: list[bytes]) -> Any:
    """The message in a frame, one of the types in `words`, with every field checked. Raises BadMessage."""
    try:
        kind = words[header["say"]]
        fields_ = dict(header["with"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadMessage("not a message of this protocol") from error

    def lower(value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {"$"}:
            try:
                return parts[value["$"]]
            except (IndexError, TypeError) as error:
                raise BadMessage("names bytes that are not there") from error
        return value

    given: dict[str, Any] = {}
    for name, is_bytes, check, _ in _fields_of(kind):
        if name not in fields_:
            continue
        value = fields_.pop(name)
        if name == "bundle" and isinstance(value, dict):
            value = {key: lower(item) for key, item in value.items()}
        elif is_bytes:
            value = lower(value)
        if not check(value):
            raise BadMessage(f"{kind.__name__}.{name} is not what it should be")
        given[name] = value
    if fields_:
        raise BadMessage(f"{kind.__name__} has no {', '.join(map(repr, fields_))}")
    try:
        return kind(**given)
    except TypeError as error:
        raise BadMessage(f"{kind.__name__} is incomplete") from error
