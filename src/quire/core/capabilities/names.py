"""What a capability may be called: a Python name that hides nothing. Pure; each refusal proposes another."""

from __future__ import annotations

import builtins
import itertools
import keyword
import re
from collections.abc import Container

from quire.core.errors import InvalidRequest

OURS = frozenset(("caps", "capability", "register_capability", "display", "get_ipython", "In", "Out")) | frozenset(
    ("ToolError", "ToolTimeout", "ApprovalDenied", "CapabilityGone")
)
_LENGTH = 60
_TAKEN = "another one has it"


def check(name: str, taken: Container[str]) -> None:
    why = _why_not(name, taken)
    if why:
        is_taken = why == _TAKEN
        raise InvalidRequest(
            f"{name!r} cannot name a capability: {why}. Take {proposal(name, taken)!r}, for example.",
            agent="uninstall_capability removes the other one." if is_taken else "",
            person="`quire capability remove` removes the other one." if is_taken else "",
        )


def _why_not(name: str, taken: Container[str]) -> str:
    if not name.isidentifier() or not name.isascii():
        return "it is no Python name"
    if len(name) > _LENGTH:
        return f"it has more than {_LENGTH} characters"
    if keyword.iskeyword(name):
        return "it is a keyword of Python"
    if hasattr(builtins, name):
        return "it is a builtin of Python"
    if name in OURS or name.startswith("_"):
        return "cells have something of Quire's own under such a name"
    if name in taken:
        return _TAKEN
    return ""


def proposal(name: str, taken: Container[str]) -> str:
    """A name like this one that may be taken."""
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[: _LENGTH - 10] or "server"
    plain = f"s{plain}" if plain[0].isdigit() else plain
    tries = itertools.chain((plain, f"{plain}_server"), (f"{plain}_{number}" for number in itertools.count(2)))
    return next(each for each in tries if not _why_not(each, taken))
