"""Arguments of commands: a mistake is answered in one line that names what was probably meant."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from quire.core.phrases import suggestion

_CHOICES = re.compile(r"argument (.+?): invalid choice: (\S+) \(choose from (.*)\)")


class Parser(argparse.ArgumentParser):
    """Of the program, and of each of its commands."""

    def parse(self, args: Sequence[str]) -> argparse.Namespace:
        """Of the whole program. Ends it with code 2 where the arguments are wrong."""
        parsed, unknown = self.parse_known_args(args)
        if unknown:
            parser: Parser = getattr(parsed, "parser", self)
            parser._refuse(unknown[0])
        return parsed

    def _refuse(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            self.error(f"{self.prog!r} does not take {word!r}")
        name = word.partition("=")[0]
        options = [option for option in self._option_string_actions if option.startswith("--")]
        self.error(f"{self.prog!r} has no option {name}.{suggestion(name, options)}")

    def error(self, message: str) -> NoReturn:
        if (found := _CHOICES.fullmatch(message)) is not None:
            what = "command" if found[1] == "COMMAND" else f"value of {found[1]}"
            name, names = found[2].strip("'"), re.findall(r"[\w.-]+", found[3])
            message = f"{name!r} is no {what}.{suggestion(name, names) or ' There are: ' + ', '.join(names)}"
        message = message if message.endswith(".") else f"{message}."
        print(f"quire: {message} `{self.prog} --help` shows what there is.", file=sys.stderr)
        sys.exit(2)
