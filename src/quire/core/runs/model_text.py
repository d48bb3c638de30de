"""The text of an output for a model: short, without escape codes. Pure functions."""

from __future__ import annotations

import html
import re

from quire.core.model import Output
from quire.core.notebooks.images import PREVIEW

WIDGET_TEXT = "text/vnd.quire.now"
"""The current text of a widget."""

TABLE_TEXT = "text/vnd.quire.table"
"""A data frame as a short table."""

_C1 = "\x80-\x9f"  # control characters; some are 8-bit forms of ESC sequences
_SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    # OSC, DCS and others that end with ST: titles, links
    rf"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b{_C1}]*(?:\x07|\x1b\\|\x9c)"
    rf"|\x1b[@-Z\\-_]|\x1b|[{_C1}]"
)
_ESCAPE_CODES = re.compile(_SEQUENCE)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
_SPECIAL = re.compile(rf"[\x1b\r\x08{_C1}]")
_TOKEN = re.compile(rf"{_SEQUENCE}|\r|\x08|[^\x1b\r\x08{_C1}]+")
_DEFAULT_REPR = re.compile(r"<[\w.<>]+ (?:object(?: at 0x[0-9a-f]+)?|at 0x[0-9a-f]+)>")
_INVISIBLE_START = re.compile(r"<(?:script|style|head)(?=[\s>])|<!--", re.IGNORECASE)
_INVISIBLE_ENDS = {
    "<!--": re.compile("-->"),
    **{f"<{tag}": re.compile(rf"</{tag}\s*>", re.IGNORECASE) for tag in ("script", "style", "head")},
}
_MAX_HTML_CHARS = 200_000  # of one output
_BLOCK_END = re.compile(r"</(?:p|div|tr|li|h[1-6]|table|ul|ol|pre)\s*>|<br\s*/?>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")


def best_mime_type(output: Output) -> str:
    """The MIME type of an output that is best for a reader of text; "" if none is."""
    bundle = output.bundle
    for mime in (WIDGET_TEXT, TABLE_TEXT):
        if mime in bundle:
            return mime
    plain = bundle.get("text/plain")
    if plain is not None and not (isinstance(plain, str) and _DEFAULT_REPR.fullmatch(plain.strip())):
        return "text/plain"
    if PREVIEW in bundle or any(mime.startswith("image/") for mime in bundle):
        return "text/plain" if plain is not None else ""
    for mime in ("text/markdown", "text/latex", "text/html", "application/json", "application/javascript"):
        if mime in bundle:
            return mime
    return "text/plain" if plain is not None else next((mime for mime in bundle if mime.startswith("text/")), "")


def as_text(mime: str, text: str) -> str:
    return html_to_text(text) if mime == "text/html" else text


def strip_escape_codes(text: str) -> str:
    """The text without terminal escape codes, 7-bit and 8-bit."""
    return _ESCAPE_CODES.sub("", text)


def escape_control_characters(source: str) -> str:
    """Source with control characters as Python escapes, so that a reader sees them and a terminal ignores them."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", source)


def final_text(text: str) -> str:
    """The final text of a stream in a terminal: without colours, and with overwritten lines applied."""
    if not _SPECIAL.search(text):
        return text
    return "\n".join(_final_line(line) for line in text.replace("\r\n", "\n").split("\n"))


def _final_line(line: str) -> str:
    if not _SPECIAL.search(line):
        return line
    shown: list[str] = []
    at = 0
    for token in _TOKEN.finditer(line):
        match token[0].replace("\x9b", "\x1b["):
            case "\r":
                at = 0
            case "\b":
                at = max(0, at - 1)
            case "\x1b[K" | "\x1b[0K":
                del shown[at:]
            case "\x1b[2K":
                shown = [" "] * at
            case said if not _ESCAPE_CODES.match(said):
                shown[at : at + len(said)] = said
                at += len(said)
    return "".join(shown).rstrip() if "\r" in line or "\b" in line else "".join(shown)


def html_to_text(text: str) -> str:
    """The text of HTML, one line per block. Long HTML is cut."""
    words = _TAG.sub(" ", _BLOCK_END.sub("\n", _without_invisible(text[:_MAX_HTML_CHARS])))
    lines = (" ".join(line.split()) for line in html.unescape(words).split("\n"))
    return "\n".join(line for line in lines if line)


def _without_invisible(text: str) -> str:
    """The HTML without parts that a browser does not show. A missing end tag is searched only once."""
    parts, at, unclosed = [], 0, set[str]()
    for begin in _INVISIBLE_START.finditer(text):
        kind = begin[0].lower()
        if begin.start() < at or kind in unclosed:
            continue
        end = _INVISIBLE_ENDS[kind].search(text, begin.end())
        if end is None:
            unclosed.add(kind)
            continue
        parts.append(text[at : begin.start()])
        at = end.end()
    return "".join([*parts, text[at:]])
