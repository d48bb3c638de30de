"""A cell's text as it is evaluated: its static imports are awaited ones, on the same lines as before."""

from __future__ import annotations

import re

_STARTS = re.compile(r"(?:^|[;}\n])[ \t]*import\b", re.M)
_NAME = r"[A-Za-z_$][\w$]*"
_STRING = r"""(?:"[^"\n\\]*"|'[^'\n\\]*')"""
_NAMED = r"\{[^{}]*\}"
_IMPORT = re.compile(
    rf"""import\s*(?:(?P<first>{_NAME})\s*(?:,\s*(?:(?P<named2>{_NAMED})|\*\s*as\s+(?P<all2>{_NAME})))?\s*from\s*"""
    rf"""|(?P<named>{_NAMED})\s*from\s*|\*\s*as\s+(?P<all>{_NAME})\s*from\s*)?(?P<from>{_STRING})"""
    rf"""(?P<with>\s*with\s*\{{[^{{}}]*\}})?[ \t]*;?"""
)
_PIECE = re.compile(rf"^(?P<what>{_NAME}|{_STRING})(?:\s+as\s+(?P<name>{_NAME}))?$")
_BEFORE_REGEX = frozenset("(,=:[!&|?{};~+-*%<>^\n")
_WORDS = ("return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "await", "yield", "else", "do")


def rewritten(code: str) -> str:
    """The code with `import ... from "..."` at its top level as `const ... = await import("...")`, by a function of the
    prelude's that says where it stands."""
    if not _STARTS.search(code):
        return code
    out, done = [], 0
    for start in _statements(code):
        found = _IMPORT.match(code, start)
        said = _awaited(found) if found and start >= done else None
        if found is None or said is None:
            continue
        out += [code[done:start], said + "\n" * found[0].count("\n")]
        done = found.end()
    return "".join([*out, code[done:]])


def _awaited(found: re.Match[str]) -> str | None:
    options = f", {{{found['with'].strip().replace('with', 'with:', 1)}}}" if found["with"] else ""
    named, all_of = found["named"] or found["named2"], found["all"] or found["all2"]
    pieces = [f"default: {found['first']}"] if found["first"] else []
    wanted = ["'default'"] if found["first"] else []
    for each in (named or "{}")[1:-1].split(","):
        if each.strip():
            piece = _PIECE.match(re.sub(r"\s+", " ", each.strip()))
            if piece is None:
                return None
            pieces.append(f"{piece['what']}: {piece['name']}" if piece["name"] else piece["what"])
            wanted.append(piece["what"] if piece["what"][0] in "\"'" else f"'{piece['what']}'")
    load = f"() => import({found['from']}{options.replace(chr(10), ' ')})"
    call = f"await globalThis['quire:import']({load}, {found['from']}, [{', '.join(wanted)}])"
    if all_of and pieces:
        return f"const {all_of} = {call}, {{{', '.join(pieces)}}} = {all_of};"
    if all_of:
        return f"const {all_of} = {call};"
    return f"const {{{', '.join(pieces)}}} = {call};" if pieces else f"{call}; void 0;"


def _statements(code: str) -> list[int]:
    """Where `import` begins a statement outside of everything: strings, comments, patterns, brackets."""
    found, at, depth, size = [], 0, 0, len(code)
    templates: list[int] = []  # the depths at which `${` was opened
    begins, before, word = True, "\n", ""
    while at < size:
        here = code[at]
        if here in " \t\r":
            at += 1
            continue
        if here == "\n":
            begins = begins or depth == 0
            at += 1
            continue
        if code.startswith("//", at):
            at = _until(code, at, "\n")
            continue
        if code.startswith("/*", at):
            at = _until(code, at + 2, "*/") + 2
            continue
        if here in "\"'":
            at, before, word, begins = _quoted(code, at), here, "", False
            continue
        if here == "`" or (here == "}" and templates and templates[-1] == depth):
            if here == "}":
                templates.pop()
            at, opened = _template(code, at + 1)
            if opened:
                templates.append(depth)
            before, word, begins = "`", "", False
            continue
        if here == "/" and (before in _BEFORE_REGEX or word in _WORDS):
            at, before, word, begins = _pattern(code, at), "/", "", False
            continue
        if here.isalnum() or here in "_$":
            end = at
            while end < size and (code[end].isalnum() or code[end] in "_$"):
                end += 1
            word = code[at:end]
            if word == "import" and begins and depth == 0 and code[end : end + 200].lstrip()[:1] not in ("(", "."):
                found.append(at)
            at, before, begins = end, "a", False
            continue
        depth += (here in "([{") - (here in ")]}")
        begins = here in ";}" and depth == 0
        at, before, word = at + 1, here, ""
    return found


def _until(code: str, at: int, mark: str) -> int:
    found = code.find(mark, at)
    return len(code) if found < 0 else found


def _quoted(code: str, at: int) -> int:
    quote, at = code[at], at + 1
    while at < len(code) and code[at] not in (quote, "\n"):
        at += 2 if code[at] == "\\" else 1
    return at + 1


def _template(code: str, at: int) -> tuple[int, bool]:
    while at < len(code):
        if code[at] == "\\":
            at += 2
        elif code[at] == "`":
            return at + 1, False
        elif code.startswith("${", at):
            return at + 2, True
        else:
            at += 1
    return at, False


def _pattern(code: str, at: int) -> int:
    at, inside = at + 1, False
    while at < len(code) and code[at] != "\n" and (code[at] != "/" or inside):
        if code[at] == "\\":
            at += 1
        inside = code[at : at + 1] == "[" or (inside and code[at : at + 1] != "]")
        at += 1
    return at + 1
