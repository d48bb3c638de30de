"""TOML files edited as text: what is not changed, comments too, stays byte for byte."""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STRING = re.compile(r'""".*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', re.DOTALL)
_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_ASSIGNMENT = re.compile(rf"[ \t]*({_KEY}(?:[ \t]*\.[ \t]*{_KEY})*)[ \t]*=[ \t]*")


def replace_file(target: Path, content: str) -> None:
    """Write the whole file or nothing: a reader sees the old file or the new one, and a failure leaves the old one."""
    data = content.encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():  # a new file stays private: it may hold secrets
            temporary.chmod(target.stat().st_mode & 0o7777)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def newline_of(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def lines(text: str) -> list[str]:
    return re.split(r"(?<=\n)", text)  # not splitlines, which also splits at characters a string may contain


def tables(text: str) -> list[str]:
    """The text split before each header: first what has no header, then one string for each table."""
    found = [""]
    for line in lines(text):
        if line.lstrip().startswith("[") and _is_toml(found[-1]):  # else inside an array or a long string
            found.append("")
        found[-1] += line
    return found


def after_last_value(table: str) -> str:
    """The comments and blank lines that end a table: they belong to what comes next.

    Raises ValueError if there are comments before them."""
    trailing = _trailing(table)
    if "#" in _STRING.sub("", table.removesuffix(trailing)):
        raise ValueError("the entry that is there holds comments, which replacing it would lose")
    return trailing


def _trailing(table: str) -> str:
    parts = lines(table)
    end = len(parts)
    while end and parts[end - 1].lstrip()[:1] in ("", "#"):
        end -= 1
    return "".join(parts[end:])


def toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_value(key)


def toml_value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(toml_value, value))}]"
        case dict():
            pairs = [f"{toml_key(key)} = {toml_value(entry)}" for key, entry in value.items()]
            return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    text = json.dumps(str(value), ensure_ascii=False)
    return text.replace("\x7f", r"\u007f")  # the one character JSON leaves and TOML forbids


def with_setting(text: str, section: str, key: str, old: str, value: Any) -> str:
    """The text with `value` at `section.key`; `old`, a key of no section that meant the same, goes.

    Raises ValueError if the rest of the file would not stay as it is."""
    wanted = _parsed(text)
    if not (old == section and isinstance(wanted.get(old), dict)):
        wanted.pop(old, None)
    if not isinstance(wanted.setdefault(section, {}), dict):
        raise ValueError(f"its {section!r} is no section")
    wanted[section][key] = _parsed(f"x = {toml_value(value)}")["x"]
    edited = _edited(text, section, key, old, toml_value(value))
    try:
        is_right = _parsed(edited) == wanted
    except ValueError:
        is_right = False
    if not is_right:
        raise ValueError(f"it is laid out so that {section}.{key} cannot be set without changing the rest")
    return edited


def _edited(text: str, section: str, key: str, old: str, value: str) -> str:
    there = _find(text, (section, key))
    if there is not None:
        text = there.replaced(text, value)
    outdated = _find(text, (old,))
    if outdated is None:
        return text if there is not None else _inserted(text, section, key, value)
    if there is None and _header_of(text, section) is None:
        return outdated.replaced(text, value, name=f"{section}.{toml_key(key)}")
    text = outdated.removed(text)
    return text if there is not None else _inserted(text, section, key, value)


@dataclass(frozen=True, kw_only=True)
class _Assignment:
    """One `key = value` of a text, and the path of the key from the top."""

    path: tuple[str, ...]
    start: int
    name: tuple[int, int]
    value: tuple[int, int]
    end: int

    def replaced(self, text: str, value: str, name: str | None = None) -> str:
        begin, end = self.value
        if "#" in _STRING.sub("", text[begin:end]):
            raise ValueError("the value that is there holds comments, which replacing it would lose")
        name = text[slice(*self.name)] if name is None else name
        return text[: self.name[0]] + name + text[self.name[1] : begin] + value + text[end:]

    def removed(self, text: str) -> str:
        """Without it; a comment behind it stays, on a line of its own."""
        comment = text[self.value[1] : self.end].lstrip()
        return text[: self.start] + comment + text[self.end :]


def _find(text: str, path: tuple[str, ...]) -> _Assignment | None:
    return next((found for found in _assignments(text) if found.path == path), None)


def _assignments(text: str) -> Iterator[_Assignment]:
    at = 0
    for number, table in enumerate(tables(text)):
        prefix: tuple[str, ...] = ()
        rest = lines(table)
        if number:
            prefix = _header_path(rest[0])
            at += len(rest.pop(0))
        statement = ""
        for line in rest:
            statement += line
            if not _is_toml(statement):  # a value of several lines
                continue
            if (found := _ASSIGNMENT.match(statement)) is not None:
                yield _assignment(statement, found, prefix, at)
            at, statement = at + len(statement), ""


def _assignment(statement: str, found: re.Match[str], prefix: tuple[str, ...], at: int) -> _Assignment:
    begin, end = _value_span(statement, found.end())
    return _Assignment(
        path=(*prefix, *_first_keys(_parsed(statement), found[1])),
        start=at,
        name=(at + found.start(1), at + found.end(1)),
        value=(at + begin, at + end),
        end=at + len(statement),
    )


def _value_span(statement: str, begin: int) -> tuple[int, int]:
    """Where the value is, without a comment behind it."""
    ends = [found.start() for found in re.finditer("#", statement[begin:])]
    for end in ends:
        if _is_toml(f"x = {statement[begin : begin + end]}"):
            return begin, begin + len(statement[begin : begin + end].rstrip())
    return begin, len(statement.rstrip())


def _first_keys(parsed: dict[str, Any], name: str) -> tuple[str, ...]:
    """The keys of a dotted name, read by the parser."""
    path = []
    for _ in re.findall(_KEY, name):
        ((key, parsed),) = parsed.items()
        path.append(key)
    return tuple(path)


def _header_path(line: str) -> tuple[str, ...]:
    found: Any = _parsed(line)
    path: tuple[str, ...] = ()
    while isinstance(found, dict) and found:
        ((key, found),) = found.items()
        path = (*path, key)
    return path if isinstance(found, dict) else (*path, "[]")  # an array of tables is no section


def _header_of(text: str, section: str) -> int | None:
    """The number of the table `[section]`."""
    paths = [_header_path(lines(table)[0]) for table in tables(text)[1:]]
    return paths.index((section,)) + 1 if (section,) in paths else None


def _inserted(text: str, section: str, key: str, value: str) -> str:
    newline = newline_of(text)
    assignment = f"{toml_key(key)} = {value}{newline}"
    parts = tables(text)
    number = _header_of(text, section)
    if number is not None:
        return "".join([*parts[:number], _with_last(parts[number], assignment, newline), *parts[number + 1 :]])
    dotted = [found for found in _assignments(parts[0]) if found.path[0] == section and len(found.path) > 1]
    if dotted:
        before = text[: dotted[-1].end]
        return _ended(before, newline) + f"{section}.{assignment}" + text[dotted[-1].end :]
    gap = newline if text.strip() else ""
    return f"{_ended(text, newline)}{gap}[{section}]{newline}{assignment}"


def _with_last(table: str, assignment: str, newline: str) -> str:
    trailing = _trailing(table)
    return _ended(table.removesuffix(trailing), newline) + assignment + trailing


def _ended(text: str, newline: str) -> str:
    return text if not text or text.endswith("\n") else text + newline


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text, parse_float=str)  # as text, nan equals nan
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not valid TOML ({error})") from error
