"""Reads and writes scripts whose cells start with `# %%`, as in VS Code, Spyder and jupytext.

Up to two blank lines before the next marker do not belong to a cell. IPython syntax becomes a comment: `# %magic`,
`# !command`. A comment that looks like a marker or a magic gets one more `# `.
"""

from __future__ import annotations

import re
from typing import Any

from quire.core.model import Cell, CellKind, NewCell, Notebook
from quire.notebook_format import cell_marker
from quire.notebook_format.document import Document, check_source, check_text, language_note

_KIND = "script"
_HEADER = re.compile(r"\A(?:#!.*\n)?(?:#.*coding[:=].*\n)?# ---[ \t]*\n(?:#.*\n)*?# ---[ \t]*(?:\n|\Z)")
_BLANK_LINES = 2  # around a cell, do not belong to it
_MARK = r"%%%*(?:\s|$)|In\[[\d ]*\]:?\s*$|<codecell>\s*$"
_SHELL = r"!!?[\w.~$\\/{(\"']"
_NAME = r"%%?(?:[A-Za-z_]\w|R\b)"  # the only magic of one letter is R: `%d` in a comment is not a magic
_MAGIC = rf"{_NAME}|{_SHELL}|\?\??[A-Za-z_%]|[A-Za-z_][\w.]*\s*=\s*(?:{_SHELL}|{_NAME})"
_LINE = re.compile(rf"([ \t]*)((?:#[ \t]*)*)(?:{_MAGIC})")
_MARK_LINE = re.compile(rf"([ \t]*)((?:#[ \t]*)+)(?:{_MARK})")
_TEXT_MARK = re.compile(rf"([ \t]*)(\\*)(?:{_MARK})")  # in Markdown cells, which are comments in the script
_PYTHON_MAGICS = ("capture", "memit", "mprun", "prun", "time", "timeit")  # their cells contain Python
_LANGUAGES = ("bash", "sh", "html", "HTML", "javascript", "js", "latex", "markdown", "perl", "ruby", "R", "sql", "svg")


def loads(text: str) -> Document:
    """Reads the cells of a script. A script without markers is one cell."""
    text = check_text(_KIND, text).replace("\r\n", "\n")
    found = _HEADER.match(text)
    header = found[0] if found else ""
    pieces = _pieces(text[len(header) :])
    marked = any(mark is not None for mark, _ in pieces)
    read = [_read_cell(mark, lines, marked) for mark, lines in pieces]
    if read and pieces[0][0] is None and marked and not read[0].source:
        read = read[1:]  # nothing before the first marker
    cells = [cell for cell in read if marked or cell.source]
    for number, cell in enumerate(cells):
        check_source(_KIND, number, cell.source)
    metadata = _metadata(header)
    notes = [] if cells else ["it is empty"]
    return Document(metadata=metadata, cells=cells, notes=(*notes, *language_note(metadata)))


def dumps(notebook: Notebook, cells: list[Cell]) -> str:
    """Writes a script, without outputs, ids and attachments."""
    own = notebook.metadata.get("quire")
    header = own.get("header") if isinstance(own, dict) else None
    whole = isinstance(header, str) and _HEADER.fullmatch(header)
    lines = [*header.removesuffix("\n").split("\n"), ""] if isinstance(header, str) and whole else []
    for cell in cells:
        written = _write_code(cell.source) if cell.kind is CellKind.CODE else _write_comments(cell.source)
        lines += [cell_marker.format_marker(cell.kind, cell.metadata), *written, ""]
    if lines[-2:] == ["", ""]:  # the last blank line only ends the line before it
        lines.append("")
    return "\n".join(lines)


def is_marked(text: str) -> bool:
    """Whether the text has a cell marker."""
    return any(cell_marker.is_marker(line.removesuffix("\r")) for line in text.split("\n"))


# Reading


def _pieces(text: str) -> list[tuple[str | None, list[str]]]:
    """Each marker with the lines below it. The marker is None for the lines before the first one."""
    pieces: list[tuple[str | None, list[str]]] = [(None, [])]
    for line in text.removesuffix("\n").split("\n"):
        if cell_marker.is_marker(line):
            pieces.append((line, []))
        else:
            pieces[-1][1].append(line)
    return pieces


def _read_cell(mark: str | None, lines: list[str], marked: bool) -> NewCell:
    lines = _trim(lines)
    if mark is None and (not marked or not lines):
        return NewCell(source="\n".join(lines))
    if mark is None:  # its first line may be a shebang
        first = [lines[0]] if lines[0].startswith("#!") else []
        return NewCell(source="\n".join([*first, _read_code(lines[len(first) :])]))
    kind, metadata = cell_marker.parse(mark)
    if kind is not CellKind.CODE:
        return NewCell(source=_read_text(lines), kind=kind, metadata=metadata)
    language = metadata.get("language")
    if language in _LANGUAGES and all(line.startswith("#") or not line for line in lines):
        magic = f"%%{metadata.pop('language')} {metadata.pop('magic_args', '')}".rstrip()
        return NewCell(source="\n".join([magic, *map(_uncomment, lines)]), metadata=metadata)
    return NewCell(source=_read_code(lines), metadata=metadata)


def _trim(lines: list[str]) -> list[str]:
    """Removes the blank lines around a cell. Additional ones belong to it."""
    first = next((place for place, line in enumerate(lines) if line), len(lines))
    if first == len(lines):
        return lines[2 * _BLANK_LINES :]
    last = next(place for place, line in enumerate(reversed(lines)) if line)
    return lines[min(first, _BLANK_LINES) : len(lines) - min(last, _BLANK_LINES)]


def _read_code(lines: list[str]) -> str:
    magic = re.match(r"# %%(\w+)", lines[0]) if lines else None
    if magic and magic[1] not in _PYTHON_MAGICS and all(line.startswith("#") for line in lines):
        return "\n".join(map(_uncomment, lines))
    return "\n".join(map(_unescape, lines))


def _unescape(line: str) -> str:
    found = _LINE.match(line) or _MARK_LINE.match(line)
    if not found or not found[2]:
        return line
    indent = found[1]
    return indent + line[len(indent) :].removeprefix("#").removeprefix(" ")


def _uncomment(line: str) -> str:
    return line[2:] if line.startswith("# ") else line.removeprefix("#")


def _read_text(lines: list[str]) -> str:
    """The text of a Markdown or raw cell, written as comments or as a triple-quoted string."""
    quoted = re.fullmatch(r'[rR]?("""|\'\'\')\n?(.*?)\n?\1\s*', "\n".join(lines), re.DOTALL)
    if quoted:
        return quoted[2]
    return "\n".join(_read_text_line(line) for line in lines)


def _read_text_line(line: str) -> str:
    line = _uncomment(line)
    found = _TEXT_MARK.match(line)
    return found[1] + line[len(found[1]) + 1 :] if found and found[2] else line


def _metadata(header: str) -> dict[str, Any]:
    """The header, and the kernelspec that it names."""
    if not header:
        return {}
    spec = re.search(r"^# +kernelspec:\n((?:#     +\w.*\n)+)", header, re.MULTILINE)
    fields = dict(re.findall(r"^# +(\w+): *(.*?) *$", spec[1], re.MULTILINE)) if spec else {}
    kernel = {"kernelspec": fields} if {"name", "display_name"} <= fields.keys() else {}
    return {**kernel, "quire": {"header": header}}


# Writing


def _write_code(source: str) -> list[str]:
    if not source:
        return []
    lines = source.split("\n")
    magic = re.match(r"%%(\w+)", lines[0])
    if magic and magic[1] not in _PYTHON_MAGICS:
        return [f"# {line}" if line else "#" for line in lines]
    return _pad([_escape(line) for line in lines])


def _pad(lines: list[str]) -> list[str]:
    """Adds blank lines at an end that has some, so that they are read as part of the cell."""
    before = [""] * _BLANK_LINES if not lines[0] else []
    after = [""] * (_BLANK_LINES - 1) if not lines[-1] else []  # one more is always written
    return [*before, *lines, *after]


def _escape(line: str) -> str:
    found = _LINE.match(line) or _MARK_LINE.match(line)
    return f"{found[1]}# {line[len(found[1]) :]}" if found else line


def _write_comments(source: str) -> list[str]:
    return [f"# {line}" if line else "#" for line in map(_escape_text, source.split("\n"))] if source else []


def _escape_text(line: str) -> str:
    found = _TEXT_MARK.match(line)
    return f"{found[1]}\\{line[len(found[1]) :]}" if found else line
