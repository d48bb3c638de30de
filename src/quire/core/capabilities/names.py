"""Checks names of capabilities: Python identifiers that hide nothing. Errors propose another name. Pure."""

from __future__ import annotations

import builtins
import itertools
import keyword
import re
from collections.abc import Container

from quire.core.errors import InvalidRequest

RESERVED_NAMES = frozenset(("caps", "capability", "register_capability", "display", "get_ipython", "In", "Out"))
RESERVED_NAMES |= {"ToolError", "ToolTimeout", "ApprovalDenied", "CapabilityGone"}
_MAX_LENGTH = 60
_IS_TAKEN = "another one has it"


def check_name(name: str, taken: Container[str]) -> None:
    why = _objection(name, taken)
    if why:
        is_taken = why == _IS_TAKEN
        raise InvalidRequest(
            f"{name!r} cannot name a capability: {why}. Take {suggest_name(name, taken)!r}, for example.",
            agent="uninstall_capability removes the other one." if is_taken else "",
            person="`quire capability remove` removes the other one." if is_taken else "",
        )


def _objection(name: str, taken: Container[str]) -> str:
    if not name.isidentifier() or not name.isascii():
        return "it is no Python name"
    if len(name) > _MAX_LENGTH:
        return f"it has more than {_MAX_LENGTH} characters"
    if keyword.iskeyword(name):
        return "it is a keyword of Python"
    if hasattr(builtins, name):
        return "it is a builtin of Python"
    if name in RESERVED_NAMES or name.startswith("_"):
        return "cells have something of Quire's own under such a name"
    if name in taken:
        return _IS_TAKEN
    return ""


def suggest_name(name: str, taken: Container[str]) -> str:
    """A similar name that is allowed."""
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[: _MAX_LENGTH - 10] or "server"
    plain = f"s{plain}" if plain[0].isdigit() else plain
    tries = itertools.chain((plain, f"{plain}_server"), (f"{plain}_{number}" for number in itertools.count(2)))
    return next(candidate for candidate in tries if not _objection(candidate, taken))
