"""Errors that calls to capabilities raise."""

from __future__ import annotations

from typing import Any


class ToolError(Exception):
    """A tool failed. `tool` is its name, `args_given` its arguments, `hint` what to do."""

    tool: str
    args_given: dict[str, Any]
    hint: str

    def __init__(
        self, message: str = "", *, tool: str = "", args_given: dict[str, Any] | None = None, hint: str = ""
    ) -> None:
        super().__init__(message)
        self.tool = tool
        self.args_given = args_given or {}
        self.hint = hint

    def __str__(self) -> str:
        message = str(self.args[0]) if self.args else ""
        begins = f"{self.tool}: " if self.tool and not message.startswith(self.tool) else ""
        ends = "" if not self.hint else f" {self.hint}" if message.endswith((".", "!", "?", "\n")) else f". {self.hint}"
        return f"{begins}{message}{ends}"


class ToolTimeout(ToolError):
    """The call timed out and was cancelled."""


class ApprovalDenied(ToolError):
    """A person or the policy denied the call."""


class CapabilityGone(ToolError):
    """The server behind a capability cannot be reached, or is not installed."""


class WrongArguments(ToolError):
    """The arguments do not match the schema; nothing was sent. Raised to code as `as_builtin`."""

    builtin: type[Exception] = ValueError

    def as_builtin(self) -> Exception:
        return self.builtin(str(self))


class WrongType(WrongArguments):
    builtin = TypeError


KINDS: dict[str, type[ToolError]] = {
    "timeout": ToolTimeout,
    "denied": ApprovalDenied,
    "gone": CapabilityGone,
    "wrong_type": WrongType,
    "wrong_value": WrongArguments,
}
ALL = (ToolError, ToolTimeout, ApprovalDenied, CapabilityGone)

for _each in ALL:
    _each.__module__ = "builtins"  # where cells find them


def make_error(kind: str, message: str, hint: str) -> ToolError:
    return KINDS.get(kind, ToolError)(message, hint=hint)
