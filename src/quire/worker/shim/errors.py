"""What a magic raises when it cannot be used as it was."""

from __future__ import annotations


class UsageError(Exception):
    """A magic that is not there, or not used as it can be."""


class StdinNotImplementedError(NotImplementedError):
    """Raised where nobody can be asked."""


UsageError.__module__ = "builtins"  # shown by its name alone
