"""IPython's syntax to plain Python, line by line: commands, magics, help, prompts of a pasted session."""

from __future__ import annotations

import re

from quire.worker.shim.statements import statement

_INTERESTING = re.compile(r"[%!?]|^\s*[,;/]|^[ \t]|^>>>|^In \[", re.MULTILINE)
_SHELLS = (
    (re.compile(r"^>>>( |$)"), re.compile(r"^(>>>|\.\.\.)( |$)")),
    (
        re.compile(r"^(\[\w+\] )?In \[\d+\]: "),
        re.compile(r"^((\[\w+\] )?In \[\d+\]: |\s*\.{3,}: ?)"),
    ),
)
_HELP = re.compile(r"(%{0,2}(?!\d)[\w*]+(?:\.(?!\d)[\w*]+|\[-?\d+\])*)(\?\??)[ \t]*$")


def transform(code: str) -> str:
    """The code as Python. Every line keeps its number; a cell magic is one call where its first line was."""
    if not _INTERESTING.search(code):
        return code
    code = clean(code)
    body = code.lstrip()
    before = code[: len(code) - len(body)]
    if body.startswith("%%") and not re.match(r"%%\w+\?", body):
        return before + _cell_magic(body)
    return _statements(code)


def clean(code: str) -> str:
    """Without the indentation all of it has, and without the prompts of a session."""
    lines = code.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), len(lines))
    if first == len(lines):
        return code
    lines = ["" if number < first else line for number, line in enumerate(lines)]
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    lines = [line.removeprefix(indent) for line in lines]
    for initial, prompt in _SHELLS:
        if initial.match(lines[first]) or any(prompt.match(line) for line in lines[first + 1 : first + 2]):
            lines = [prompt.sub("", line, count=1) for line in lines]
    return "\n".join(lines)


def _cell_magic(code: str) -> str:
    line, _, body = code.partition("\n")
    name, _, arguments = line[2:].rstrip().partition(" ")
    if body and not body.endswith("\n"):
        body += "\n"
    return f"get_ipython().run_cell_magic({name!r}, {arguments!r}, {body!r})\n"


def _statements(code: str) -> str:
    parts: list[str] = []
    at = 0
    while at < len(code):
        found = re.compile(r"[ \t]*").match(code, at)
        start = found.end() if found else at
        parts.append(code[at:start])
        escaped = code[start : start + 1] in tuple("%!?,;/")
        read = statement(code, start)
        if _asks_help(code[start : read.end], read.last):
            parts.append(_help(code[start : read.end]))
            at = read.end
        elif escaped:
            command, at, lines = _whole(code, start)
            parts.append(_escaped(command) + "\n" * lines)
        elif read.assigns_command:
            command, at, lines = _whole(code, read.end)
            command = command.lstrip()
            call = _magic(command[1:]) if command[0] == "%" else f"get_ipython().getoutput({command[1:]!r})"
            gap = code[read.end : len(code) - len(code[read.end :].lstrip(" \t"))]
            parts.append(code[start : read.end] + gap + call + "\n" * lines)
        else:
            parts.append(code[start : read.end])
            at = read.end
        parts.append(code[at : at + 1])  # the newline
        at += 1
    return "".join(parts)


def _whole(code: str, start: int) -> tuple[str, int, int]:
    """A command with the lines it goes on over as one; where it ends, and how many those were."""
    parts = []
    while True:
        end = code.find("\n", start)
        end = len(code) if end < 0 else end
        line = code[start:end]
        if not line.endswith("\\") or end >= len(code) - 1:
            parts.append(line.rstrip())
            return " ".join(parts), end, len(parts) - 1
        parts.append(line[:-1])
        start = end + 1


def _escaped(command: str) -> str:
    escape = command[:2] if command[:2] in ("!!", "??") else command[:1]
    rest = command[len(escape) :]
    match escape:
        case "!":
            return f"get_ipython().system({rest!r})"
        case "!!":
            return f"get_ipython().getoutput({rest!r})"
        case "%":
            return _magic(rest)
        case "?" | "??":
            return _described(rest, escape) if rest else "get_ipython().show_usage()"
    name, _, arguments = rest.partition(" ")
    match escape:
        case "/":
            return f"{name}({', '.join(arguments.split())})"
        case ";":
            return f'{name}("{arguments}")'
    words = '", "'.join(arguments.split())
    return f'{name}("{words}")'


def _magic(text: str) -> str:
    name, _, arguments = text.partition(" ")
    return f"get_ipython().run_line_magic({name!r}, {arguments!r})"


def _asks_help(text: str, last: str) -> bool:
    return last == "?" and text.rstrip() not in ("?", "??") and _HELP.search(text) is not None


def _help(text: str) -> str:
    found = _HELP.search(text)
    return _described(found[1], found[2]) + "\n" * text.count("\n") if found else text


def _described(target: str, escape: str) -> str:
    magic = "pinfo2" if escape == "??" else "psearch" if "*" in target else "pinfo"
    name, _, arguments = f"{magic} {target}".partition(" ")
    return f"get_ipython().run_line_magic({name!r}, {arguments!r})"
