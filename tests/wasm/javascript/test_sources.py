"""Static imports in a cell become awaited ones, and nothing else changes."""

from __future__ import annotations

import pytest

from quire.runtimes.wasm.host.javascript.sources import rewritten


@pytest.mark.parametrize(
    ("code", "made"),
    [
        ("import a from './a.js'", "const {default: a} = await import('./a.js');"),
        ('import {a, b as c} from "./a.js";', 'const {a, b: c} = await import("./a.js");'),
        ("import * as n from './a.js'", "const n = await import('./a.js');"),
        ("import d, * as n from './a.js'", "const n = await import('./a.js'), {default: d} = n;"),
        ("import d, {x} from './a.js'", "const {default: d, x} = await import('./a.js');"),
        ("import './a.js'", "await import('./a.js'); void 0;"),
        ("import {\n  a,\n  b,\n} from './a.js'\nx", "const {a, b} = await import('./a.js');\n\n\n\nx"),
        ("x; import a from './a.js'", "x; const {default: a} = await import('./a.js');"),
        (
            "import j from './j.json' with {type: 'json'}",
            "const {default: j} = await import('./j.json', {with: {type: 'json'}});",
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
