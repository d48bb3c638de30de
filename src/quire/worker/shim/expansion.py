"""`{expression}`, `$name` and `$$` in a command or a magic's line, filled in from the namespace."""

from __future__ import annotations

import re
from string import Formatter
from typing import Any

_DOLLAR = re.compile(r"\$(\$?[\w.]+)")


def expanded(text: str, names: dict[str, Any]) -> str:
    """The text filled in; as it was where any part of it has no value: `$HOME` is the shell's own."""
    if "{" not in text and "$" not in text and "}" not in text:
        return text
    try:
        return "".join(_parts(text, names))
    except Exception:
        return text


def _parts(text: str, names: dict[str, Any]) -> list[str]:
    formatter = Formatter()
    parts: list[str] = []
    for plain, field, spec, conversion in formatter.parse(text):
        parts.append(_dollars(plain, names))
        if field is not None:
            value = formatter.convert_field(eval(field, names), conversion)  # noqa: S307 - the user's own
            parts.append(format(value, expanded(spec or "", names)))
    return parts


def _dollars(text: str, names: dict[str, Any]) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1]
        if text.count("'", found.end()) % 2:  # inside quotes the shell would not expand either
            return found[0]
        if name.startswith("$"):
            return name
        return str(eval(name, names))  # noqa: S307 - the user's own

    return _DOLLAR.sub(value, text)
