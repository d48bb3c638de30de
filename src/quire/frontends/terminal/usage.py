"""Arguments of commands: a mistake is answered in one line that names what was probably meant."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from quire.core.phrases import nearest, suggestion

_CHOICES = re.compile(r"argument (.+?): invalid choice: (\S+) \(choose from (.*)\)")


class Parser(argparse.ArgumentParser):
    """Of the program, and of each of its commands. It takes whole names only: an abbreviation may be a typing error."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        self._renamed: dict[str, str] = {}

    def add_old_option(self, old: str, new: str, **options: Any) -> None:
        """Accept an option under the name it had, without showing it. Suggestions give the new name."""
        self.add_argument(old, dest=old, help=argparse.SUPPRESS, **options)
        self._renamed[old] = new

    def parse(self, args: Sequence[str]) -> argparse.Namespace:
        """Of the whole program. Ends it with code 2 where the arguments are wrong."""
        self._check_options(args)
        parsed, unknown = self.parse_known_args(args)
        if unknown:
            parser: Parser = getattr(parsed, "parser", self)
            parser._refuse(unknown[0])
        return parsed

    def _check_options(self, args: Sequence[str]) -> None:
        """An option that the command does not have is refused first: what follows it is meant to be its value."""
        commands = next((action.choices for action in self._actions if action.metavar == "COMMAND"), None) or {}
        parser = commands.get(args[0]) if isinstance(commands, Mapping) and args else None
        if parser is None:
            return
        for word in itertools.takewhile(lambda word: word != "--", args[1:]):
            is_option = word.startswith("--") and " " not in word  # argparse takes a word with a space for a value
            if is_option and word.partition("=")[0] not in parser._option_string_actions:
                parser._refuse(word)

    def _refuse(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            self.error(f"{self.prog!r} does not take {word!r}")
        name = word.partition("=")[0]
        options = [option for option in self._option_string_actions if option.startswith("--")]
        near = nearest(name, options)
        advice = f" The nearest is {self._renamed.get(near, near)!r}." if near is not None else ""
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
