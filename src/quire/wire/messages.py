"""The words: each request and event as a frozen type, checked when it arrives.

A message is a dataclass; on the wire it is its name, its fields as JSON, and its bytes beside them.
What comes from a worker is hostile: `parse` raises `BadMessage` on anything that does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, get_args

VERSION = 2
INTERRUPTS_BYTES = 8  # of their count, at the start of the lock's file

Bundle = dict[str, str | bytes]
"""A MIME bundle: text as str, binary as bytes."""


class BadMessage(ValueError):
    """A frame arrived whole but does not say anything we know."""


def one(*types: type) -> Callable[[Any], bool]:
    """A check: the value is of one of these types."""
    # bool is an int in Python and never one in a message
    return lambda value: type(value) in types


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_bundle(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(item, (str, bytes)) for key, item in value.items()
    )


def is_said(value: Any) -> bool:
    return isinstance(value, list) and all(is_bundle(item) for item in value)


def _named(value: Any, below: str = "") -> bool:
    """A list of objects that have names, and, where it is said, each such a list below."""
    return isinstance(value, list) and all(
        isinstance(item, dict) and isinstance(item.get("name"), str) and (not below or _named(item.get(below)))
        for item in value
    )


def shallow(value: Any, depth: int = 50) -> bool:
    """JSON that is nested no deeper than whoever keeps or shows it can follow."""
    level = _containers([value])
    for _ in range(depth):
        if not level:
            return True
        level = _containers(
            item for nested in level for item in (nested.values() if isinstance(nested, dict) else nested)
        )
    return not level


def _containers(items: Iterable[Any]) -> list[Any]:
    """Those that hold others; each once, however often it is among them."""
    return list({id(item): item for item in items if isinstance(item, (dict, list, tuple))}.values())


def says(check: Callable[[Any], bool], **given: Any) -> Any:
    """A field of a message, with the check of what may stand in it."""
    return field(metadata={"check": check}, **given)


# Requests: parent to worker


@dataclass(frozen=True, kw_only=True)
class Run:
    """Execute `code`, called `name` in tracebacks; answered by any number of events and one Finished."""

    run: str = says(one(str))
    code: str = says(one(str))
    name: str = says(one(str))
    count: int = says(one(int), default=0)  # its execution count, the n of Out[n]


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Describe the namespace; answered by Inspected."""


@dataclass(frozen=True, kw_only=True)
class Read:
    """Read one variable; answered by Value."""

    name: str = says(one(str))


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some rows of a table that was shown; answered by Paged."""

    table: str = says(one(str))
    start: int = says(one(int))
    rows: int = says(one(int))


@dataclass(frozen=True, kw_only=True)
class Enter:
    """Work in this folder, under these limits; 0 is none. The first request, once; answered by Entered."""

    workspace: str = says(one(str))
    memory: int = says(one(int), default=0)  # bytes of data a process may have
    cpu: float = says(one(int, float), default=0)  # seconds of processor time a run may take
    ipython: bool = says(one(bool), default=False)  # every cell is IPython's to run
    ipython_folder: str = says(one(str), default="")  # has IPython, for an environment without it
    venv: str = says(one(str), default="")  # the environment to import from, in place of the interpreter's own
    environ: dict[str, str] = says(is_bundle, default_factory=dict)  # to be set
    proxied: bool = says(one(bool), default=False)  # the only way to the network is the proxy named there
    no_index: list[str] = says(_texts, default_factory=list)  # hosts of the package index that are not granted
    sandbox: dict[str, Any] = says(one(dict), default_factory=dict)  # see worker/sandbox/apply.py; {} is none


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The relayed capabilities there are now, each {name, about, tools, resources, prompts}; without an answer.

    A tool is {name, description, input, output, hints}, as its server declares it.
    """

    catalog: list[dict[str, Any]] = says(lambda value: type(value) is list and shallow(value))
    hidden: list[str] = says(_texts, default_factory=list)  # variables of the environment with their secrets


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Leave a sleeping copy of the process; answered by Checkpointed."""

    name: str = says(one(str))


@dataclass(frozen=True, kw_only=True)
class Load:
    """Load the snapshot the process was started with; answered by Loaded."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was answered to Asked, as [line]; [] and why where nobody did."""

    question: int = says(one(int))
    line: list[str] = says(_texts)
    why: str = says(one(str), default="")


Request = Enter | Load | Offer | Run | Inspect | Read | Page | Checkpoint | Answer

# Events: worker to parent


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The worker listens."""

    version: int = says(one(int))
    python: str = says(one(str))


@dataclass(frozen=True, kw_only=True)
class Printed:
    """Bytes written to stdout or stderr, as they were."""

    stream: str = says(lambda value: value in ("stdout", "stderr"))
    data: bytes = says(one(bytes))


@dataclass(frozen=True, kw_only=True)
class Displayed:
    """Something shown: `kind` is one of the output types, `result` marks the last expression's value.

    With `update` it takes the place of all that was shown under its `display_id`, in whichever cell. `metadata` is
    the document's, `about` what is known besides: source, table.
    """

    kind: str = says(lambda value: value in ("execute_result", "image", "html", "dataframe"))
    bundle: Bundle = says(is_bundle)
    metadata: dict[str, Any] = says(lambda value: type(value) is dict and shallow(value), default_factory=dict)
    about: dict[str, str] = says(is_bundle, default_factory=dict)
    result: bool = says(one(bool), default=False)
    display_id: str = says(one(str), default="")
    update: bool = says(one(bool), default=False)


@dataclass(frozen=True, kw_only=True)
class Cleared:
    """What the cell has shown so far is taken back: at once, or with `wait` when it shows something next."""

    wait: bool = says(one(bool), default=False)


@dataclass(frozen=True, kw_only=True)
class Raised:
    """The user's code raised: the traceback shows cell source, our own frames left out."""

    name: str = says(one(str))
    message: str = says(one(str))
    traceback: str = says(one(str))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The code waits for a line from a person; answered by Answer."""

    question: int = says(one(int))  # which, counted
    prompt: str = says(one(str))


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The run is over. `value` is the last expression's value where JSON can say it, as [value], else []."""

    run: str = says(one(str))
    outcome: str = says(lambda value: value in ("success", "error", "interrupted"))
    value: list[Any] = says(lambda value: type(value) is list and shallow(value), default_factory=list)
    imports: list[str] = says(_texts, default_factory=list)
    functions: list[str] = says(_texts, default_factory=list)
    count: int = says(one(int), default=0)  # its execution count, of a kernel that counts by itself


@dataclass(frozen=True, kw_only=True)
class Entered:
    """The kernel is where it was told to be, or why it is not: then it must not run anything."""

    why_not: str = says(one(str), default="")


@dataclass(frozen=True, kw_only=True)
class Native:
    """The capabilities the code has registered, where that is news: each {name, about, approve, expose, methods}.

    A method is {name, signature, description, input}: input is a JSON Schema of its parameters.
    """

    capabilities: list[dict[str, Any]] = says(lambda value: _named(value, "methods") and shallow(value))


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """The namespace: variables by name with type and size, functions with signature and docstring."""

    variables: dict[str, str] = says(is_bundle)
    functions: list[dict[str, str]] = says(is_said)


@dataclass(frozen=True, kw_only=True)
class Value:
    """One variable: [value] where JSON can say it; else [] with what it is, or why there is none."""

    value: list[Any] = says(lambda value: type(value) is list and shallow(value))
    what: str = says(one(str))


@dataclass(frozen=True, kw_only=True)
class Paged:
    """Rows of a table as text, and how many it has; or why there are none."""

    text: str = says(one(str), default="")
    total: int = says(one(int), default=0)
    why_not: str = says(one(str), default="")


@dataclass(frozen=True, kw_only=True)
class Checkpointed:
    """A copy was made, or why none could be; how good it is, and what it will not have."""

    name: str = says(one(str))
    why_not: str = says(one(str), default="")
    quality: str = says(lambda value: value in ("clean", "degraded", "hostile"), default="clean")
    lost: list[str] = says(_texts, default_factory=list)
    faults: int = says(one(int), default=0)  # pages this process has touched so far
    seconds: float = says(one(int, float), default=0)  # of processor time it took


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A snapshot is in the namespace, or why it is not; what did not come back, and what is different now."""

    why_not: str = says(one(str), default="")
    variables: int = says(one(int), default=0)
    lost: list[dict[str, str]] = says(is_said, default_factory=list)  # name, what, why, run
    notes: list[str] = says(_texts, default_factory=list)
    seconds: float = says(one(int, float), default=0)


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


_Shape = tuple[tuple[str, bool, Callable[[Any], bool], Any], ...]
_shapes: dict[type, _Shape] = {}


def _shape(kind: type) -> _Shape:
    """Of each field its name, whether it is bytes, what it is checked by, and what it is where nothing is said: asked
    for with every message."""
    if kind not in _shapes:
        _shapes[kind] = tuple(
            (each.name, each.type == "bytes", each.metadata["check"], _unsaid(each)) for each in fields(kind)
        )
    return _shapes[kind]


def _unsaid(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def dump(message: Any) -> tuple[dict[str, Any], list[bytes]]:
    """A message as its JSON header and the bytes beside it; `{"$": n}` stands for the n-th bytes."""
    parts: list[bytes] = []

    def lift(value: bytes) -> dict[str, int]:
        parts.append(value)
        return {"$": len(parts) - 1}

    said: dict[str, Any] = {}
    for name, is_bytes, _, unsaid in _shape(type(message)):
        value = getattr(message, name)
        if value == unsaid:
            continue
        if name == "bundle":
            value = {key: lift(item) if isinstance(item, bytes) else item for key, item in value.items()}
        elif name == "metadata" and not shallow(value):
            raise BadMessage("metadata is nested too deeply to be shown")
        said[name] = lift(value) if is_bytes else value
    return {"say": type(message).__name__, "with": said}, parts


def parse(words: dict[str, type], header: Any, parts: list[bytes]) -> Any:
    """The message a frame holds, of the given vocabulary, with every field checked."""
    try:
        kind = words[header["say"]]
        said = dict(header["with"])
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
    for name, is_bytes, check, _ in _shape(kind):
        if name not in said:
            continue
        value = said.pop(name)
        if name == "bundle" and isinstance(value, dict):
            value = {key: lower(item) for key, item in value.items()}
        elif is_bytes:
            value = lower(value)
        if not check(value):
            raise BadMessage(f"{kind.__name__}.{name} is not what it should be")
        given[name] = value
    if said:
        raise BadMessage(f"{kind.__name__} has no {', '.join(map(repr, said))}")
    try:
        return kind(**given)
    except TypeError as error:
        raise BadMessage(f"{kind.__name__} is incomplete") from error
