"""Messages of the relay: calls that code in a kernel makes to the server, and their answers.

They have a socket of their own and are numbered, since threads and an event loop share it and answers come in any
order. The worker may be hostile here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from quire.wire.messages import checked_field, is_json_object, is_type

OPERATIONS = ("tool", "resources", "read", "prompts", "prompt", "rest", "approve", "install", "uninstall", "catalog")
ERROR_KINDS = ("tool", "timeout", "denied", "gone", "refused", "cancelled", "wrong_type", "wrong_value")


# Worker to server


@dataclass(frozen=True, kw_only=True)
class Called:
    """A call to a capability. Answered by one Returned or Refused with the same number.

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

    call: int = checked_field(is_type(int))
    do: str = checked_field(lambda value: value in OPERATIONS)
    capability: str = checked_field(is_type(str), default="")
    method: str = checked_field(is_type(str), default="")
    given: dict[str, Any] = checked_field(is_json_object, default_factory=dict)
    timeout: float = checked_field(is_type(int, float), default=0)  # seconds; 0: the setting
    declared: str = checked_field(
        lambda value: value in ("", "never", "ask", "always"), default=""
    )  # approve of a native


@dataclass(frozen=True, kw_only=True)
class GivenUp:
    """The caller stopped waiting for this call."""

    call: int = checked_field(is_type(int))


# Server to worker


@dataclass(frozen=True, kw_only=True)
class Returned:
    call: int = checked_field(is_type(int))
    value: dict[str, Any] = checked_field(is_json_object)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The call failed. `kind` selects the exception, `message` is a sentence, `hint` what to do."""

    call: int = checked_field(is_type(int))
    kind: str = checked_field(lambda value: value in ERROR_KINDS)
    message: str = checked_field(is_type(str))
    hint: str = checked_field(is_type(str), default="")


KernelMessage = Called | GivenUp
Answer = Returned | Refused

KERNEL_MESSAGES: dict[str, type] = {kind.__name__: kind for kind in get_args(KernelMessage)}
SERVER_MESSAGES: dict[str, type] = {kind.__name__: kind for kind in get_args(Answer)}
