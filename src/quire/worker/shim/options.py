"""The options a magic's line begins with."""

from __future__ import annotations

import re
import shlex

from quire.worker.shim.errors import UsageError


def leading(line: str, flags: str = "", valued: str = "", long: tuple[str, ...] = ()) -> tuple[dict[str, str], str]:
    """Options by name, and what follows them, untouched; those in `valued`, and `long=` ones, have a value."""
    found: dict[str, str] = {}
    rest = line.strip()
    while match := re.match(r"-(-[\w-]+|[A-Za-z])", rest):
        name = match[1]
        after = rest[match.end() :]
        if name.startswith("-"):
            value, rest = _long(name[1:], after, long)
            found[name[1:]] = value
        elif name in valued:
            value, rest = _word(after)
            found[name] = value
        elif name in flags:
            found[name] = ""
            rest = f"-{after}" if re.match(r"[A-Za-z]", after) and after[0] in flags + valued else after.lstrip()
        else:
            break
    return found, rest


def _long(name: str, after: str, long: tuple[str, ...]) -> tuple[str, str]:
    if name in long:
        return "", after.lstrip()
    if f"{name}=" in long:
        return _word(after.removeprefix("="))
    raise UsageError(f"There is no option --{name} here; there are {', '.join(f'--{each}' for each in long)}.")


def _word(text: str) -> tuple[str, str]:
    match = re.match(r"\s*('[^']*'|\"[^\"]*\"|\S+)\s*", text)
    if match is None:
        raise UsageError("An option lacks its value.")
    return match[1].strip("'\""), text[match.end() :]


def words(line: str) -> list[str]:
    """The words of a line, quotes taken off; a quote that does not end is a letter."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()
