"""Where statements begin and end in text that is nearly Python: strings, brackets and continued lines seen through."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\f]+)
    | (?P<comment>\#[^\n]*)
    | (?P<continued>\\\r?\n)
    | (?P<string>(?P<prefix>[rRbBuUfFtT]{0,3})(?P<quote>'''|\"\"\"|'|\"))
    | (?P<word>\w+)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<operator>(?:\*\*|//|<<|>>|[-+*/%&|^@:=!<>])=)
    | (?P<assign>=)
    | (?P<newline>\n)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_NESTED_QUOTES = sys.version_info >= (3, 12)  # f"{x["a"]}" is one string


@dataclass
class Statement:
    """One statement: text[start:end] without its newline, and its last token.

    Where a command is assigned, it ends behind the `=`.
    """

    start: int
    end: int
    last: str = ""
    assigns_command: bool = False


def statement(text: str, start: int) -> Statement:
    """The statement that begins here."""
    found = Statement(start, len(text))
    depth, at, assigned = 0, start, False
    while token := _TOKEN.match(text, at):
        at = token.end()
        match token.lastgroup:
            case "newline" if not depth:
                found.end = token.start()
                break
            case "string" | "quote" | "prefix":
                at = _after_string(text, at, token["quote"], token["prefix"])
            case "open":
                depth += 1
            case "close":
                depth = max(0, depth - 1)
            case "assign" if not depth and not assigned:
                assigned = True
                if _command_at(text, at):
                    found.end, found.assigns_command = at, True
                    break
        if token.lastgroup not in ("space", "newline", "continued"):
            found.last = token[0]
    return found


def _command_at(text: str, at: int) -> bool:
    return re.compile(r"[ \t]*(?:!|%[^\W\d])").match(text, at) is not None


def _after_string(text: str, at: int, quote: str, prefix: str) -> int:
    """Behind the string whose text begins here; behind its quote alone where it has no end."""
    if _NESTED_QUOTES and set(prefix.lower()) & {"f", "t"}:
        end = _after_format_string(text, at, quote)
    else:
        end = _after_quote(text, at, quote)
    if end < 0:
        return len(text) if len(quote) == 3 else at
    return end


def _after_quote(text: str, at: int, quote: str) -> int:
    inside = r"(?:\\.|[^\\])*?" if len(quote) == 3 else r"(?:\\.|[^\\\n])*?"
    found = re.compile(inside + quote, re.DOTALL).match(text, at)
    return found.end() if found else -1


def _after_format_string(text: str, at: int, quote: str) -> int:
    depth = 0
    while at < len(text):
        here = text[at]
        if not depth and text.startswith(quote, at):
            return at + len(quote)
        if here == "\n" and len(quote) == 1 and not depth:
            return -1
        if here == "\\" or (not depth and text[at : at + 2] in ("{{", "}}")):
            at += 2
            continue
        if depth and here in "'\"":
            inner = here * 3 if text.startswith(here * 3, at) else here
            at = _after_string(text, at + len(inner), inner, "f")
            continue
        depth += (here == "{") - (here == "}" and depth > 0)
        at += 1
    return -1
