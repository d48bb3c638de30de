"""`quire install`: the configuration of a client, where it is, and how Quire is added to it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.frontends.terminal.toml_text import (
    after_last_value,
    lines,
    newline_of,
    replace_file,
    tables,
    toml_key,
    toml_value,
)

CLIENTS: tuple[str, ...] = ("claude-code", "claude-desktop", "cursor", "vscode", "codex", "gemini-cli")

_Entry = dict[str, Any]


class ConfigurationRefused(Exception):
    """The file cannot be changed safely; it is as it was, and the message says what to do."""


def configuration(client: str, *, name: str, command: list[str], env: dict[str, str]) -> str:
    """The text to paste, ending in a newline; as a file of its own it is complete."""
    file = _FILES[client]
    return file.rendered(name, file.entry(command, env))


def path_of(client: str, *, home: Path, platform: str, environ: Mapping[str, str]) -> Path:
    """Where the client keeps its user's configuration; an empty variable counts as unset."""
    match client:
        case "claude-code":
            return Path(environ.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"
        case "claude-desktop":
            return _application_data(home, platform, environ) / "Claude" / "claude_desktop_config.json"
        case "cursor":
            return home / ".cursor" / "mcp.json"
        case "vscode":
            return _application_data(home, platform, environ) / "Code" / "User" / "mcp.json"
        case "codex":
            return Path(environ.get("CODEX_HOME") or home / ".codex") / "config.toml"
        case "gemini-cli":
            return Path(environ.get("GEMINI_CLI_HOME") or home) / ".gemini" / "settings.json"
    raise ValueError(f"There is no client {client!r}; choose one of {', '.join(CLIENTS)}.")


def _application_data(home: Path, platform: str, environ: Mapping[str, str]) -> Path:
    match platform:
        case "darwin":
            return home / "Library" / "Application Support"
        case "win32":
            return Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
        case _:
            return Path(environ.get("XDG_CONFIG_HOME") or home / ".config")


def write(client: str, path: Path, *, name: str, command: list[str], env: dict[str, str]) -> str:
    """Put the entry in the file, every other byte kept, and say what was done."""
    file = _FILES[client]
    entry = file.entry(command, env)
    try:
        target = path.resolve()
        content = _content(target)
        text = content.removeprefix("\ufeff")
        merged, done = _merged(file, text, name, entry)
        if merged != text:
            replace_file(target, content[: len(content) - len(text)] + merged)
    except (OSError, ValueError, RuntimeError) as why:  # RuntimeError: nested too deeply, links in a circle
        paste = file.rendered(name, entry)
        advice = "Correct that and run this again, or put this in yourself:"
        raise ConfigurationRefused(f"{path} was left as it was: {why}. {advice}\n\n{paste}") from why
    return f"{done} {path}."


def _content(target: Path) -> str:
    try:
        return target.read_bytes().decode()
    except FileNotFoundError:  # asked by reading: exists() also denies links in a circle
        return ""


def _merged(file: _JsonFile | _TomlFile, text: str, name: str, entry: _Entry) -> tuple[str, str]:
    """The new text and what was done to it; raises ValueError when the rest would not stay equal."""
    wanted = file.parsed(text)
    servers = wanted.setdefault(file.servers, {})
    if not isinstance(servers, dict):
        raise ValueError(f"its {file.servers!r} does not hold servers by name")
    if servers.get(name) == entry:
        return text, f"Already there, unchanged: {name!r} in"
    done = f"Replaced the entry {name!r} in" if name in servers else f"Added {name!r} to"
    servers[name] = entry
    merged = file.edited(text, name, entry)
    if not _reads_as(file, merged, wanted):
        raise ValueError(f"it is laid out so that {name!r} cannot be set without touching the rest")
    return merged, done


def _reads_as(file: _JsonFile | _TomlFile, text: str, wanted: dict[str, Any]) -> bool:
    try:
        return file.parsed(text) == wanted
    except ValueError:
        return False


# ---- JSON, edited in place: key order, indentation, odd numbers and comments stay as they were


@dataclass(frozen=True, kw_only=True)
class _JsonFile:
    """A client's JSON: the key of its servers, what every entry says, whether comments are legal."""

    servers: str
    always: Mapping[str, str]
    comments: bool

    def entry(self, command: list[str], env: dict[str, str]) -> _Entry:
        return {**self.always, **_stdio(command, env)}

    def rendered(self, name: str, entry: _Entry) -> str:
        return _Layout(indent="  ", newline="\n").rendered({self.servers: {name: entry}}, depth=0) + "\n"

    def parsed(self, text: str) -> dict[str, Any]:
        plain = self._read(text).plain
        try:
            found = _DECODER.decode(plain) if plain.strip() else {}
        except json.JSONDecodeError as error:
            line = text.count("\n", 0, error.pos) + 1
            raise ValueError(f"it is not valid JSON (line {line}: {error.msg})") from error
        if not isinstance(found, dict):
            raise ValueError("its top level is not a JSON object")
        return found

    def edited(self, text: str, name: str, entry: _Entry) -> str:
        source = self._read(text)
        if not source.plain.strip():  # empty, or comments and nothing else
            source = self._read(f"{text.rstrip()}\n{{}}\n".lstrip())
        root = _skip_space(source.plain, 0)
        top = _members(source.plain, root)
        if self.servers not in top:
            return source.appended(root, self.servers, {name: entry}, depth=1)
        servers, _ = top[self.servers]
        there = _members(source.plain, servers)
        if name not in there:
            return source.appended(servers, name, entry, depth=2)
        return source.replaced(*there[name], entry, depth=2)

    def _read(self, text: str) -> _JsonText:
        code = _COMMENT.sub(_blank, text) if self.comments else text
        plain = _TRAILING_COMMA.sub(_blank, code) if self.comments else text
        return _JsonText(text=text, code=code, plain=plain)


@dataclass(frozen=True, kw_only=True)
class _JsonText:
    """The text; the same with comments blanked; the same without trailing commas. Positions agree."""

    text: str
    code: str
    plain: str

    def appended(self, start: int, key: str, value: _Entry, *, depth: int) -> str:
        """With a last member more in the object that opens at `start`."""
        ends = [end for _, end in _members(self.plain, start).values()]
        last = max(ends, default=start + 1)
        comma, at = ("," if ends else ""), last
        if ends and self.code[_skip_space(self.code, last)] == ",":  # a trailing comma is there already
            comma, at = "", _skip_space(self.code, last) + 1
        if rest_of_line := _REST_OF_LINE.match(self.plain, at):  # a comment stays beside what it is about
            at = rest_of_line.end()
        layout = self._layout()
        member = f"{layout.line(depth)}{_quoted(key)}: {layout.rendered(value, depth)}"
        close = _DECODER.raw_decode(self.plain, start)[1] - 1
        tail = "" if "\n" in self.text[at:close] else layout.line(depth - 1)
        return self.text[:last] + comma + self.text[last:at] + member + tail + self.text[at:]

    def replaced(self, begin: int, end: int, value: _Entry, *, depth: int) -> str:
        """With another value between two positions, unless comments would be lost with the old one."""
        if self.text[begin:end] != self.code[begin:end]:
            raise ValueError("the entry that is there holds comments, which replacing it would lose")
        return self.text[:begin] + self._layout().rendered(value, depth) + self.text[end:]

    def _layout(self) -> _Layout:
        indent = re.search(r'\n([ \t]+)"', self.plain)
        return _Layout(indent=indent[1] if indent else "  ", newline=newline_of(self.text))


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """How a file breaks and indents its lines."""

    indent: str
    newline: str

    def line(self, depth: int) -> str:
        return self.newline + self.indent * depth

    def rendered(self, value: _Entry, depth: int) -> str:
        return json.dumps(value, indent=self.indent, ensure_ascii=False).replace("\n", self.line(depth))


def _members(plain: str, start: int) -> dict[str, tuple[int, int]]:
    """Where the value of each member lies, in the object that opens at `start`; of twins, the last."""
    found = {}
    at = _skip_space(plain, start + 1)
    while plain[at] != "}":
        key, at = _DECODER.raw_decode(plain, at)
        begin = _skip_space(plain, _skip_space(plain, at) + 1)  # past the colon
        _, end = _DECODER.raw_decode(plain, begin)
        found[key] = (begin, end)
        at = _skip_space(plain, end)
        if plain[at] == ",":
            at = _skip_space(plain, at + 1)
    return found


def _skip_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _blank(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else " " * len(found[0])


def _no_constant(word: str) -> Any:
    raise ValueError(f"it is not valid JSON ({word} is not a JSON number)")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_STRING = r'"(?:[^"\\]|\\.)*"'  # matched first, so that what is inside a string is never taken for syntax
_COMMENT = re.compile(rf"{_STRING}|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_REST_OF_LINE = re.compile(r"[ \t]*(?=\r?\n)")


# ---- TOML, edited by whole tables


@dataclass(frozen=True, kw_only=True)
class _TomlFile:
    """A client's TOML: one table a server, under the key of its servers."""

    servers: str

    def entry(self, command: list[str], env: dict[str, str]) -> _Entry:
        return _stdio(command, env)

    def rendered(self, name: str, entry: _Entry) -> str:
        pairs = [f"{toml_key(key)} = {toml_value(value)}" for key, value in entry.items()]
        return "\n".join([f"[{self.servers}.{toml_key(name)}]", *pairs, ""])

    def parsed(self, text: str) -> dict[str, Any]:
        try:
            return tomllib.loads(text, parse_float=str)  # as text, nan equals nan
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"it is not valid TOML ({error})") from error

    def edited(self, text: str, name: str, entry: _Entry) -> str:
        newline = newline_of(text)
        table = self.rendered(name, entry).replace("\n", newline)
        root, *others = tables(text)
        ours = [self._is_of(other, name) for other in others]
        if not any(ours):
            end = "" if not text or text.endswith("\n") else newline
            return text + end + (newline if text.strip() else "") + table
        kept = [after_last_value(other) if own else other for other, own in zip(others, ours, strict=True)]
        first = ours.index(True)
        return "".join([root, *kept[:first], table, *kept[first:]])

    def _is_of(self, table: str, name: str) -> bool:
        """Whether the table, or the table it is part of, is the server's."""
        servers = tomllib.loads(lines(table)[0]).get(self.servers)
        return isinstance(servers, dict) and name in servers


# ---- both


def _stdio(command: list[str], env: dict[str, str]) -> _Entry:
    program, *args = command
    return {"command": program, "args": args} | ({"env": env} if env else {})


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_TYPED = {"type": "stdio"}
_FILES: dict[str, _JsonFile | _TomlFile] = {
    "claude-code": _JsonFile(servers="mcpServers", always=_TYPED, comments=False),
    "claude-desktop": _JsonFile(servers="mcpServers", always={}, comments=False),
    "cursor": _JsonFile(servers="mcpServers", always=_TYPED, comments=True),
    "vscode": _JsonFile(servers="servers", always=_TYPED, comments=True),
    "codex": _TomlFile(servers="mcp_servers"),
    "gemini-cli": _JsonFile(servers="mcpServers", always={}, comments=True),
}
