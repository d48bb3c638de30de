"""What a library takes from `IPython.core.magic_arguments`: a magic's options said by decorators."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

from quire.worker.shim import options
from quire.worker.shim.errors import UsageError

Added = Callable[[Any], Any]
"""Something done to a parser; what the next ones are added to."""


class MagicArgumentParser(argparse.ArgumentParser):
    def __init__(self, prog: str | None = None, **named: Any) -> None:
        super().__init__(prog=prog, add_help=False, **named)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def parse_argstring(self, argstring: str, *, partial: bool = False) -> Any:
        words = options.words(argstring)
        return self.parse_known_args(words) if partial else self.parse_args(words)


def parse_argstring(magic_func: Any, argstring: str, *, partial: bool = False) -> Any:
    """The options a magic was called with."""
    return magic_func.parser.parse_argstring(argstring, partial=partial)


def magic_arguments(name: str | None = None) -> Callable[[Any], Any]:
    """The outermost decorator: makes the parser of what the others said."""

    def decorate(function: Any) -> Any:
        function.argcmd_name = name or function.__name__.removeprefix("magic_")
        function.parser = construct_parser(function)
        function.has_arguments = True
        return function

    return decorate


def construct_parser(magic_func: Any) -> MagicArgumentParser:
    parser = MagicArgumentParser(real_name(magic_func), description=magic_func.__doc__)
    for keywords in getattr(magic_func, "argcmd_kwds", []):
        for key, value in keywords.items():
            setattr(parser, key, value)
    target: Any = parser
    for add in reversed(getattr(magic_func, "decorators", [])):  # the undermost was applied first
        target = add(parser) if getattr(add, "is_group", False) else add(target) or target
    return parser


def real_name(magic_func: Any) -> str:
    return str(getattr(magic_func, "argcmd_name", magic_func.__name__.removeprefix("magic_")))


def _said(add: Added) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        function.decorators = [*getattr(function, "decorators", []), add]
        return function

    return decorate


def argument(*args: Any, **named: Any) -> Callable[[Any], Any]:
    def add(parser: Any) -> None:
        parser.add_argument(*args, **named)

    return _said(add)


def defaults(**named: Any) -> Callable[[Any], Any]:
    def add(parser: Any) -> None:
        parser.set_defaults(**named)

    return _said(add)


def argument_group(*args: Any, **named: Any) -> Callable[[Any], Any]:
    def add(parser: Any) -> Any:
        return parser.add_argument_group(*args, **named)

    add.is_group = True  # type: ignore[attr-defined]
    return _said(add)


def kwds(**named: Any) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        function.argcmd_kwds = [*getattr(function, "argcmd_kwds", []), named]
        return function

    return decorate
