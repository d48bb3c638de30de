"""The audit log: a line for each call, of a client or of a cell. Who, from where, what, how it ended; never what was
said."""

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
    "approved",  # code of a notebook may make a call of its own; whether it does is not known here
    "error",
    "crashed",
    "timeout",
    "interrupted",
    "running",  # the call was answered before its run was over
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
    tool: str  # or the method, where no tool was called; of a capability, capability.method
    outcome: str
    ms: float
    client: str | None = None  # its name and version, as it gives them
    session: str | None = None  # a digest of its name: who has that could speak in it
    era: str | None = None  # of the protocol
    notebook: str | None = None
    cell: int | None = None
    run: RunId | None = None
    digest: str | None = None  # of the code, or of a capability's arguments
    received: int | None = None  # bytes of text and data in the arguments
    sent: int | None = None  # in the answer


class Audit(Protocol):
    """Where records go: what is recorded survives the end of this process. Never raises."""

    def record(self, record: Record) -> None: ...

    @property
    def trouble(self) -> str:
        """Why the last record could not be written; empty where it was."""
        ...

    @property
    def lost(self) -> int:
        """Records that could not be written, since the server began."""
        ...


class AuditFiles(Protocol):
    """The log as it is on disk, of all servers that write it."""

    def mark(self) -> Mapping[int, int]:
        """Where the log ends now."""
        ...

    def newest(self, mark: Mapping[int, int], since: float) -> Iterator[dict[str, Any]]:
        """Entries up to the mark, the newest first; those older than this may be left out."""
        ...

    def coming(self, mark: Mapping[int, int]) -> Iterator[dict[str, Any] | None]:
        """Entries from the mark on, without an end; None whenever there is none for the moment."""
        ...


class Calls:
    """Every call that ended: counted, and written down before it is answered."""

    def __init__(self, audit: Audit, *, required: bool = False) -> None:
        self.tally = Tally()  # of whatever else is counted, too
        self._audit = audit
        self._required = required
        self.tally.watch("quire_audit_lost_total", lambda: audit.lost)

    def check(self) -> None:
        """Raises OperationFailed where each call must be recorded, and the last could not be."""
        if self._required and self._audit.trouble:
            raise OperationFailed(
                f"The audit log cannot be written ({self._audit.trouble}), and calls that are not recorded are not "
                "made here (setting store.audit_required). Nothing was done. "
                "Call again when the operator has made room."
            )

    def over(self, record: Record, label: str = "") -> None:
        """`label` is what metrics call the tool: they tell no names that people chose."""
        if record.kind == "call":
            self.tally.count("quire_calls_total", tool=label, outcome=record.outcome)
            self.tally.observe("quire_call_seconds", record.ms / 1000, tool=label)
        else:
            self.tally.count("quire_capability_calls_total", outcome=record.outcome)
            self.tally.observe("quire_capability_call_seconds", record.ms / 1000)
        self._audit.record(record)


def outcome_of(state: CellState) -> str:
    """How a call ended whose run is in this state."""
    return _OF_RUNS.get(state, "running")


def one_word(name: str) -> str:
    """A name that somebody else gave: with blanks and line ends it could be read as an entry of its own."""
    return "".join(letter if letter.isprintable() and not letter.isspace() else "?" for letter in name)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def size(value: Any) -> int:
    """Bytes of the text and data in plain data, without names and punctuation."""
    found, todo = 0, [value]  # not by recursion: a client may nest as deep as it likes
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


def moment(at: float) -> str:
    """UTC, to the millisecond: such texts sort as the times do."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line(record: Record) -> bytes:
    said: dict[str, Any] = {
        "at": moment(record.at),
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
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


_BEGINS = b'{"at":"'  # cannot be within a line: a quote in a text has a backslash before it


def entry(line: bytes) -> dict[str, Any] | None:
    """What a line says; of one that begins with the torn rest of another, the whole one. None where there is none."""
    try:
        found = json.loads(line[max(0, line.rfind(_BEGINS)) :])
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("at"), str) else None


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which entries are asked for; what is None is any."""

    who: str | None = None
    tool: str | None = None
    notebook: str | None = None
    outcome: str | None = None
    kind: str | None = None
    since: float = 0.0  # seconds since the epoch

    def fits(self, entry: Mapping[str, Any]) -> bool:
        """In a tool's name `*` stands for anything."""
        if self.since and entry["at"] < moment(self.since):
            return False
        if self.tool is not None and not fnmatchcase(str(entry.get("tool", "")), self.tool):
            return False
        asked = (self.who, self.notebook, self.outcome, self.kind)
        given = (entry.get(name) for name in ("who", "notebook", "outcome", "kind"))
        return all(one is None or one == other for one, other in zip(asked, given, strict=True))
