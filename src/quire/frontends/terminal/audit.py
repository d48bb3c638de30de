"""`quire audit`: prints entries of the audit log."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from quire.core.errors import InvalidRequest
from quire.core.ops.audit import OUTCOMES, AuditFiles, AuditFilter

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def moment(said: str | None) -> float:
    """A time, or how long ago, as seconds since the epoch. Without a zone it is UTC."""
    if said is None:
        return 0.0
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", said):
        return time.time() - float(ago[1]) * _UNITS[ago[2]]
    try:
        found = datetime.fromisoformat(said)
    except ValueError:
        raise InvalidRequest(
            f"{said!r} is no time. Give an age (90s, 10m, 2h, 7d) or a time (2026-11-16T08:00)."
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def show(log: AuditFiles, wanted: AuditFilter, *, limit: int, follow: bool, as_json: bool) -> int:
    """Print the last `limit` matching entries, oldest first; with `follow` also new ones, until Ctrl-C."""
    if wanted.outcome is not None and wanted.outcome not in OUTCOMES:
        raise InvalidRequest(f"There is no outcome {wanted.outcome!r}; there are {', '.join(OUTCOMES)}.")
    say = _as_json if as_json else _as_text
    mark = log.end()  # entries written meanwhile are shown exactly once
    shown = list(islice(filter(wanted.matches, log.newest(mark, wanted.since)), limit or None))
    try:
        for entry in reversed(shown):
            print(say(entry))
        for each in log.follow(mark) if follow else ():
            if each is None:
                sys.stdout.flush()
            elif wanted.matches(each):
                print(say(each))
        sys.stdout.flush()
    except BrokenPipeError:  # of `quire audit | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _as_json(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":"))


def _as_text(entry: Mapping[str, Any]) -> str:
    def said(name: str) -> str:
        value = entry.get(name)
        return "-" if value is None else str(value)

    place = said("notebook") if entry.get("cell") is None else f"{said('notebook')}:{said('cell')}"
    size = f"{said('in')}>{said('out')}"
    text = (
        f"{said('at')}  {said('outcome'):<11} {said('tool'):<20} {place:<16} {said('who'):<10} "
        f"{said('ms'):>10} ms  {size:>12}  {said('via')} {said('client')}"
    )
    return "".join(each if each.isprintable() else "?" for each in text)  # names come from other users
