"""The audit log: a line for each call of a client or of a cell, without its contents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol

from quire.core.errors import OperationFailed
from quire.core.model import CellState, Principal, RunId
from quire.core.ops.metrics import Tally

OUTCOMES = (
    "ok",
    "approved",  # code may make a call of its own; whether it did is not known
    "error",
    "crashed",
    "timeout",
    "interrupted",
    "running",  # the call was answered before its run ended
    "asked",  # the call was answered with a question to a person
    "refused",
    "denied",
    "gone",
    "cancelled",
)
_OF_RUNS = {
    CellState.SUCCESS: "ok",
    CellState.ERROR: "error",
    CellState.TIMEOUT: "timeout",
    CellState.INTERRUPTED: "interrupted",
    CellState.CRASHED: "crashed",
}


@dataclass(frozen=True, kw_only=True)
class Record:
    """One call that has ended."""

    at: float  # when, in seconds since the epoch
    kind: Literal["call", "capability"]
    who: Principal
    via: str  # stdio, http or cell
    tool: str  # a tool, another method of MCP, or capability.method
    outcome: str
    ms: float
    client: str | None = None  # the name and version that it gives
    session: str | None = None  # a digest: the id itself would let its reader use the session
    era: str | None = None  # the protocol version
    notebook: str | None = None
    cell: int | None = None
    run: RunId | None = None
    digest: str | None = None  # of the code or of the arguments of a capability
    received: int | None = None  # bytes of text and data in the arguments
    sent: int | None = None  # the same of the answer


class Audit(Protocol):
    """Writes records so that they survive the end of this process. Never raises."""

    def record(self, record: Record) -> None: ...

    @property
    def trouble(self) -> str:
        """Why the last record could not be written; empty if it was."""
        ...

    @property
    def lost(self) -> int:
        """The number of records that could not be written since the server started."""
        ...


class AuditFiles(Protocol):
    """The log on disk, of all servers that write it."""

    def end(self) -> Mapping[int, int]:
        """Where the log ends now."""
        ...

    def newest(self, end: Mapping[int, int], since: float) -> Iterator[dict[str, Any]]:
        """Entries up to `end`, the newest first; those older than `since` may be left out."""
        ...

    def follow(self, end: Mapping[int, int]) -> Iterator[dict[str, Any] | None]:
        """Entries after `end`, for ever; None while there is no new one."""
        ...


class CallLog:
    """Calls that ended: counted in metrics, and written to the audit log."""

    def __init__(self, audit: Audit, *, required: bool = False) -> None:
        self.tally = Tally()  # other parts count here, too
        self._audit = audit
        self._required = required
        self.tally.watch("quire_audit_lost_total", lambda: audit.lost)

    def check(self) -> None:
        """Raises OperationFailed if calls must be recorded (`audit_required`) and the last one could not be."""
        if self._required and self._audit.trouble:
            raise OperationFailed(
                f"The audit log cannot be written ({self._audit.trouble}), and calls that are not recorded are not "
                "made here (setting store.audit_required). Nothing was done. "
                "Call again when the operator has made room."
            )

    def add(self, record: Record, label: str = "") -> None:
        """`label`: the tool in metrics, which show no names that users chose."""
        if record.kind == "call":
            self.tally.count("quire_calls_total", tool=label, outcome=record.outcome)
            self.tally.observe("quire_call_seconds", record.ms / 1000, tool=label)
        else:
            self.tally.count("quire_capability_calls_total", outcome=record.outcome)
            self.tally.observe("quire_capability_call_seconds", record.ms / 1000)
        self._audit.record(record)


def run_outcome(state: CellState) -> str:
    """The outcome of a call whose run is in this state."""
    return _OF_RUNS.get(state, "running")


def printable_word(name: str) -> str:
    """A name from outside without spaces and line ends, which could make it look like a log entry."""
    return "".join(letter if letter.isprintable() and not letter.isspace() else "?" for letter in name)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def content_bytes(value: Any) -> int:
    """The bytes of text and data in JSON data, without keys and punctuation."""
    found, todo = 0, [value]  # no recursion: clients may nest deeply
    while todo:
        match todo.pop():
            case str() as text:
                found += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
            case dict() as pairs:
                todo += pairs.values()
            case list() | tuple() as several:
                todo += several
            case None:
                pass
            case other:
                found += len(str(other))
    return found


def format_time(at: float) -> str:
    """UTC in milliseconds, in a format whose texts sort by time."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_line(record: Record) -> bytes:
    fields: dict[str, Any] = {
        "at": format_time(record.at),
        "kind": record.kind,
        "who": record.who,
        "client": record.client,
        "session": record.session,
        "via": record.via,
        "era": record.era,
        "tool": record.tool,
        "notebook": record.notebook,
        "cell": record.cell,
        "run": record.run,
        "digest": record.digest,
        "outcome": record.outcome,
        "ms": round(record.ms, 3),
        "in": record.received,
        "out": record.sent,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


_LINE_START = b'{"at":"'  # never inside a line: quotes in texts are escaped


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The entry on this line, or None. A torn entry before it is skipped."""
    try:
        found = json.loads(line[max(0, line.rfind(_LINE_START)) :])
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("at"), str) else None


@dataclass(frozen=True, kw_only=True)
class AuditFilter:
    """Selects entries; None matches any value."""

    who: str | None = None
    tool: str | None = None
    notebook: str | None = None
    outcome: str | None = None
    kind: str | None = None
    since: float = 0.0  # seconds since the epoch

    def matches(self, entry: Mapping[str, Any]) -> bool:
        """In `tool`, `*` matches anything."""
        if self.since and entry["at"] < format_time(self.since):
            return False
        if self.tool is not None and not fnmatchcase(str(entry.get("tool", "")), self.tool):
            return False
        asked = (self.who, self.notebook, self.outcome, self.kind)
        given = (entry.get(name) for name in ("who", "notebook", "outcome", "kind"))
        return all(one is None or one == other for one, other in zip(asked, given, strict=True))
