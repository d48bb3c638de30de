"""Parses arguments of commands. An error is one line with the nearest name."""

from __future__ import annotations

import argparse
import itertools
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from quire.core.phrases import nearest, suggestion

_log = logging.getLogger("quire")

_CHOICES = re.compile(r"argument (.+?): invalid choice: (\S+) \(choose from (.*)\)")


class Parser(argparse.ArgumentParser):
    """Parser of the program and of each command. It refuses abbreviated options, which may be typing errors."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        self.renamed: dict[str, str] = {}  # options of earlier versions, which are still accepted

    def parse(self, args: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments of the program. Exits with code 2 if they are wrong."""
        args = self._with_new_names(args)
        self._check_options(args)
        parsed, unknown = self.parse_known_args(args)
        if unknown:
            parser: Parser = getattr(parsed, "parser", self)
            parser._refuse(unknown[0])
        return parsed

    def _with_new_names(self, args: Sequence[str]) -> list[str]:
        renamed = self._commands()[args[0]].renamed if args and args[0] in self._commands() else {}
        found = []
        for word in args:
            name, equals, value = word.partition("=")
            if name in renamed:
                _log.warning("%s is now %s; the old name still works.", name, renamed[name])
            found.append(f"{renamed.get(name, name)}{equals}{value}")
        return found

    def _check_options(self, args: Sequence[str]) -> None:
        """Refuse unknown options first: argparse would take the value that follows for another argument."""
        commands = self._commands()
        parser = commands.get(args[0]) if args else None
        if parser is None:
            return
        if parser._commands():
            parser._check_options(args[1:])
            return
        for word in itertools.takewhile(lambda word: word != "--", args[1:]):
            is_option = word.startswith("--") and " " not in word  # argparse takes a word with a space for a value
            if is_option and word.partition("=")[0] not in parser._option_string_actions:
                parser._refuse(word)

    def _commands(self) -> Mapping[str, Parser]:
        found = (action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction))
        return next(found, {})

    def _refuse(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            self.error(f"{self.prog!r} does not take {word!r}")
        name = word.partition("=")[0]
        options = [option for option in self._option_string_actions if option.startswith("--")]
        near = nearest(name, [*self.renamed, *options])
        advice = f" The nearest is {self.renamed.get(near, near)!r}." if near is not None else ""
        self.error(f"{self.prog!r} has no option {name}.{advice}")

    def error(self, message: str) -> NoReturn:
        if (found := _CHOICES.fullmatch(message)) is not None:
            name, names = found[2].strip("'"), re.findall(r"[\w.-]+", found[3])
            wrong = f"{self.prog!r} has no {name!r}"
            if found[1] == "COMMAND":
                wrong = f"{name!r} is no command"
            elif found[1].startswith("-"):
                wrong = f"{name!r} is no value of {found[1]}"
            message = f"{wrong}.{suggestion(name, names) or ' There are: ' + ', '.join(names)}"
        message = message if message.endswith(".") else f"{message}."
        print(f"quire: {message} `{self.prog} --help` shows what there is.", file=sys.stderr)
        sys.exit(2)
