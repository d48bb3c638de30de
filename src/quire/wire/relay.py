"""The words of the relay: what a kernel's code asks of the server while it runs, and what it is answered.

They go over a socket of their own, beside the channel, numbered: calls of threads and of one event loop
share it, and answers come in any order. What a worker says here is as hostile as anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from quire.wire.messages import one, says, shallow

DOES = ("tool", "resources", "read", "prompts", "prompt", "rest", "approve", "install", "uninstall", "catalog")
KINDS = ("tool", "timeout", "denied", "gone", "refused", "cancelled", "wrong_type", "wrong_value")


def _given(value: Any) -> bool:
    return type(value) is dict and shallow(value)


# Worker to server


@dataclass(frozen=True, kw_only=True)
class Called:
    """Something is wanted of a capability; answered by one Returned or Refused of the same number.

    tool       method: its own name, given: its arguments       → content, structured
    resources                                                   → resources, templates
    read       given: uri                                       → contents
    prompts                                                     → prompts
    prompt     method: its own name, given: its arguments       → messages
    rest       given: key, start                                → text: what was cut from an answer, from there on
    approve    method, given: arguments, of a native capability → nothing
    install    given: as install_capability takes them          → catalog
    uninstall                                                   → catalog
    catalog                                                     → catalog: every capability there is now
    """

    call: int = says(one(int))
    do: str = says(lambda value: value in DOES)
    capability: str = says(one(str), default="")
    method: str = says(one(str), default="")
    given: dict[str, Any] = says(_given, default_factory=dict)
    timeout: float = says(one(int, float), default=0)  # seconds; 0 as the settings say
    declared: str = says(lambda value: value in ("", "never", "ask", "always"), default="")  # of a native: its approve


@dataclass(frozen=True, kw_only=True)
class GivenUp:
    """Nobody waits for this call any more."""

    call: int = says(one(int))


# Server to worker


@dataclass(frozen=True, kw_only=True)
class Returned:
    call: int = says(one(int))
    value: dict[str, Any] = says(_given)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """It failed: `kind` says which exception is raised for it, `message` is a sentence, `hint` what to do."""

    call: int = says(one(int))
    kind: str = says(lambda value: value in KINDS)
    message: str = says(one(str))
    hint: str = says(one(str), default="")


Asking = Called | GivenUp
Answer = Returned | Refused

ASKING: dict[str, type] = {kind.__name__: kind for kind in get_args(Asking)}
ANSWERS: dict[str, type] = {kind.__name__: kind for kind in get_args(Answer)}
