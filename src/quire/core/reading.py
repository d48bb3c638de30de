"""What a model reads of an output: the text that says most in few characters. Pure."""

from __future__ import annotations

import html
import re

from quire.core.images import PREVIEW
from quire.core.model import Output

NOW = "text/vnd.quire.now"
"""A widget's text as it is now."""

TABLE = "text/vnd.quire.table"
"""A data frame in few characters."""

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_NOTHING = re.compile(r"<[\w.]+ object(?: at 0x[0-9a-f]+)?>")
_UNSEEN = re.compile(r"<(script|style|head)\b.*?</\1\s*>|<!--.*?-->", re.DOTALL | re.IGNORECASE)
_BREAK = re.compile(r"</(?:p|div|tr|li|h[1-6]|table|ul|ol|pre)\s*>|<br\s*/?>", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")


def best(output: Output) -> str:
    """The MIME type of an output that says most to a reader of text; "" where none does."""
    bundle = output.bundle
    for mime in (NOW, TABLE):
        if mime in bundle:
            return mime
    plain = bundle.get("text/plain")
    if plain is not None and not (isinstance(plain, str) and _NOTHING.fullmatch(plain.strip())):
        return "text/plain"
    if PREVIEW in bundle or any(mime.startswith("image/") for mime in bundle):
        return "text/plain" if plain is not None else ""
    for mime in ("text/markdown", "text/latex", "text/html", "application/json", "application/javascript"):
        if mime in bundle:
            return mime
    return "text/plain" if plain is not None else next((mime for mime in bundle if mime.startswith("text/")), "")


def as_text(mime: str, text: str) -> str:
    return from_html(text) if mime == "text/html" else text


def settled(text: str) -> str:
    """A stream as a terminal leaves it: colours gone, and of a line that was overwritten what stayed."""
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\r" not in text and "\b" not in text:
        return text
    return "\n".join(_line(line) for line in text.replace("\r\n", "\n").split("\n"))


def _line(line: str) -> str:
    while "\b" in line:
        shorter = re.sub(r"[^\b]\b", "", line)
        line = shorter if shorter != line else line.replace("\b", "")
    if "\r" not in line:
        return line
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part) :]
    return shown.rstrip()


def from_html(text: str) -> str:
    """The words of a piece of HTML, a line for a block."""
    words = _TAG.sub(" ", _BREAK.sub("\n", _UNSEEN.sub("", text)))
    lines = (" ".join(line.split()) for line in html.unescape(words).split("\n"))
    return "\n".join(line for line in lines if line)
