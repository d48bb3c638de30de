"""Static imports in a cell become awaited ones, and nothing else changes."""

from __future__ import annotations

import pytest

from quire.runtimes.wasm.host.javascript.sources import rewritten


def by(load: str, *names: str) -> str:
    """How a module is loaded, and which names of it are wanted."""
    module = load.partition(",")[0]
    return f"await globalThis['quire:import'](() => import({load}), {module}, [{', '.join(names)}])"


A, DEFAULT = "'./a.js'", "'default'"


@pytest.mark.parametrize(
    ("code", "made"),
    [
        ("import a from './a.js'", f"const {{default: a}} = {by(A, DEFAULT)};"),
        ("import {a, b as c} from './a.js';", f"""const {{a, b: c}} = {by(A, "'a'", "'b'")};"""),
        ("import * as n from './a.js'", f"const n = {by(A)};"),
        ("import d, * as n from './a.js'", f"const n = {by(A, DEFAULT)}, {{default: d}} = n;"),
        ("import d, {x} from './a.js'", f"""const {{default: d, x}} = {by(A, DEFAULT, "'x'")};"""),
        ("import {'a-b' as c} from './a.js'", f"""const {{'a-b': c}} = {by(A, "'a-b'")};"""),
        ("import './a.js'", f"{by(A)}; void 0;"),
        ("import {\n  a,\n  b,\n} from './a.js'\nx", f"""const {{a, b}} = {by(A, "'a'", "'b'")};\n\n\n\nx"""),
        ("x; import a from './a.js'", f"x; const {{default: a}} = {by(A, DEFAULT)};"),
        (
            "import j from './j.json' with {type: 'json'}",
            f"""const {{default: j}} = {by("'./j.json', {with: {type: 'json'}}", DEFAULT)};""",
        ),
    ],
)
def test_an_import_is_awaited_on_its_own_lines(code: str, made: str) -> None:
    assert rewritten(code) == made
    assert rewritten(code).count("\n") == code.count("\n")


@pytest.mark.parametrize(
    "code",
    [
        "import('./a.js')",
        "import.meta",
        "'\\nimport a from \"./a.js\"'",
        "`\nimport a from './a.js'\n`",
        "`${`\nimport a from './a.js'`}`",
        "/*\nimport a from './a.js'\n*/",
        "// x\n// import a from './a.js'",
        "{\nimport a from './a.js'\n}",
        "x = /[/]\\/'/;\nlet y = a / 2; /'/",
        "const important = 1;\nimportant",
        "import a from",
        "import {a b} from './a.js'",
        "(" * 1000 + "\nimport a from './a.js'",
        "'unclosed\n`unclosed ${ import",
        "/unclosed\nimport",
    ],
)
def test_what_only_looks_like_one_is_left(code: str) -> None:
    assert rewritten(code) == code
