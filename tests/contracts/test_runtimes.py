"""The contract of every runtime: notebooks behave alike in every language and kind of kernel."""

from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.core.errors import InvalidRequest, OperationFailed
from quire.frontends.python import Notebook, Quire
from tests.support.servers import keywords
from tests.support.wasm.assets import assets_dir, science_assets_dir

CLOSURE = """
def counter(n):
    def up():
        n[0] += 1
        return n[0]
    return up

up = counter([0])
up()
"""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The same programs in the words of one runtime's language."""

    runtime: str
    python: str = "plain"  # which it is, in WebAssembly
    define: str = "x = 41"
    value: str = "x + 1"
    change: str = "x += 1"
    say: str = "print('said')"
    fail: str = "x += 1\ndef g(): raise ValueError('why')\ng()"
    error: str = "ValueError: why"
    line: str = "line 2"
    forever: str = "while True: pass"
    half: str = "gen = (n * n for n in range(10)); next(gen); next(gen)"
    more: str = "next(gen)"
    closure: str = CLOSURE
    again: str = "up()"
    flood: str = "for n in range(200_000): print('x' * 100)"
    write: str = "open('made.txt', 'w').write('here')"
    read: str = "open('given.txt').read()"
    bomb: str = "hold = []\nwhile True: hold.append('x' * 10_000_000)"
    deep: str = "def f(): return f()\nf()"


JAVASCRIPT = Dialect(
    runtime="wasm-javascript",
    define="let x = 41",
    change="x += 1",
    say="console.log('said')",
    fail="x += 1\nfunction g() { throw new RangeError('why') }\ng()",
    error="RangeError: why",
    line=":2",
    forever="while (true) {}",
    half="function* squares() { for (let n = 0; ; n++) yield n * n }\nconst gen = squares(); gen.next(); gen.next()",
    more="gen.next().value",
    closure="let up = (() => { let n = 0; return () => ++n })(); up()",
    again="up()",
    flood="for (let n = 0; n < 60000; n++) console.log('x'.repeat(100))",
    write="files.write('made.txt', 'here')",
    read="files.read('given.txt')",
    bomb="const hold = []; while (true) hold.push('x'.repeat(10000000) + hold.length)",
    deep="function f() { return f() + 1 }\nf()",
)
SCIENCE = Dialect(runtime="wasm-python", python="science")
DIALECTS = {
    "python": Dialect(runtime="python"),
    "wasm-python": Dialect(runtime="wasm-python"),
    "wasm-python-science": SCIENCE,
    "wasm-javascript": JAVASCRIPT,
}


CHOICES = [pytest.param(each, marks=[pytest.mark.soak] if each is SCIENCE else []) for each in DIALECTS.values()]


@pytest.fixture(scope="module", params=CHOICES, ids=DIALECTS)
def words(request: pytest.FixtureRequest) -> Dialect:
    found: Dialect = request.param
    return found


@pytest.fixture(scope="module")
async def opened(tmp_path_factory: pytest.TempPathFactory, words: Dialect) -> AsyncIterator[Quire]:
    """One app for all tests of a runtime."""
    async with quire.open(tmp_path_factory.mktemp("runtimes") / "data", **keywords(_settings(words))) as found:
        yield found


def _settings(words: Dialect) -> dict[str, Any]:
    assets = science_assets_dir() if words is SCIENCE else assets_dir()
    return {"preload": "", "spare_kernels": 0, "assets_dir": assets, "wasm_python": words.python}


@pytest.fixture
async def book(opened: Quire, words: Dialect) -> AsyncIterator[Notebook]:
    """A new notebook, whose kernel ends with the test."""
    created = await opened.create(f"book-{uuid.uuid4().hex[:8]}", runtime=words.runtime)
    yield created
    await created.reset()


async def test_the_namespace_stays_and_the_last_value_is_told(book: Notebook, words: Dialect) -> None:
    await book.add_cell(words.define)
    assert await (await book.add_cell(words.value)).text() == "42"
    assert await book.value("x") == 41


async def test_what_is_printed_is_shown(book: Notebook, words: Dialect) -> None:
    assert await (await book.add_cell(words.say)).text() == "said"


async def test_an_error_names_itself_and_its_line_and_what_was_done_stays(book: Notebook, words: Dialect) -> None:
    await book.add_cell(words.define)
    failed = await book.add_cell(words.fail)
    assert failed.state == "ERROR"
    assert words.error in await failed.text() and words.line in str(failed.outputs[-1].bundle)
    assert await (await book.add_cell(words.value)).text() == "43"


async def test_an_endless_loop_ends_at_its_timeout_and_the_namespace_stays(book: Notebook, words: Dialect) -> None:
    await book.add_cell(words.define)
    assert (await book.add_cell(words.forever, timeout=0.5)).state == "TIMEOUT"
    assert await (await book.add_cell(words.value)).text() == "42"


async def test_a_rollback_takes_back_what_cells_did(book: Notebook, words: Dialect) -> None:
    await book.add_cell(words.define)
    await book.keep("defined")
    await book.add_cell(words.change)
    await book.rollback("defined")
    assert await (await book.add_cell(words.value)).text() == "42"
    await book.rollback("start")
    assert (await book.add_cell(words.value)).state == "ERROR"


async def test_a_generator_half_way_and_a_closure_are_in_a_checkpoint(book: Notebook, words: Dialect) -> None:
    await book.add_cell(words.half)
    await book.add_cell(words.closure)
    await book.keep("half way")
    for _ in range(2):
        assert await (await book.add_cell(words.more)).text() == "4"
        assert await (await book.add_cell(words.again)).text() == "2"
        await book.rollback("half way")


async def test_a_branch_goes_its_own_way(opened: Quire, book: Notebook, words: Dialect) -> None:
    await book.add_cell(words.define)
    branch = await book.branch(f"{book.name}-branch")
    await book.add_cell(words.change)
    assert await (await branch.add_cell(words.value)).text() == "42"
    assert await (await book.add_cell(words.value)).text() == "43"
    await branch.rollback("start")
    assert await (await branch.add_cell(words.value)).text() == "42"


async def test_a_flood_is_cut_and_said_so(book: Notebook, words: Dialect) -> None:
    flooded = await book.add_cell(words.flood, timeout=60)
    assert flooded.state == "SUCCESS" and "bytes of output dropped" in await flooded.text()
    assert await (await book.add_cell(words.say)).text() == "said"


async def test_files_are_those_of_the_workspace(book: Notebook, words: Dialect) -> None:
    await book.files.write("given.txt", "given")
    assert "given" in await (await book.add_cell(words.read)).text()
    await book.add_cell(words.write)
    assert await book.files.read("made.txt") == b"here"


async def test_recursion_without_end_is_an_error_or_costs_its_cell(book: Notebook, words: Dialect) -> None:
    await book.add_cell(words.define)
    assert (await book.add_cell(words.deep)).state in ("ERROR", "CRASHED")
    assert await (await book.add_cell(words.value)).text() == "42"


async def test_memory_without_end_is_an_error_or_costs_its_cell(opened: Quire, words: Dialect) -> None:
    book = await opened.create("small", runtime=words.runtime, memory=2**28)
    await book.add_cell(words.define)
    assert (await book.add_cell(words.bomb, timeout=60)).state in ("ERROR", "CRASHED")
    assert await (await book.add_cell(words.value)).text() == "42"


async def test_the_namespace_is_there_after_a_restart(tmp_path: Path, words: Dialect) -> None:
    settings = _settings(words)
    async with quire.open(tmp_path / "data", **keywords(settings)) as first:
        book = await first.create("book", runtime=words.runtime)
        await book.add_cell(words.define)
        await book.save("named")
        await book.add_cell(words.change)
    async with quire.open(tmp_path / "data", **keywords(settings)) as second:
        book = await second.notebook("book")
        assert await (await book.add_cell(words.value)).text() == "43"
        await book.restore("named")
        assert await (await book.add_cell(words.value)).text() == "42"


@pytest.mark.parametrize(
    "words",
    [choice for choice, words in zip(CHOICES, DIALECTS.values(), strict=True) if words is not JAVASCRIPT],
    indirect=True,
    ids=[name for name, words in DIALECTS.items() if words is not JAVASCRIPT],
)
async def test_what_a_first_cell_displays_is_shown(book: Notebook) -> None:
    cell = await book.add_cell("from IPython.display import HTML, display\ndisplay(HTML('<b>shown</b>'))")
    assert await cell.text() == "<IPython.core.display.HTML object>"


async def test_elsewhere_than_on_linux_notebooks_are_in_webassembly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"preload": "", "spare_kernels": 0, "assets_dir": assets_dir(), "wasm_python": "plain"}
    async with quire.open(tmp_path / "data", **keywords(settings)) as opened:
        await opened.create("old")
    monkeypatch.setattr(sys, "platform", "darwin")  # of which no test runner is
    async with quire.open(tmp_path / "data", **keywords(settings)) as opened:
        book = await opened.create("new")
        assert await (await book.add_cell("import sys\nsys.platform")).text() == "'wasi'"
        with pytest.raises(InvalidRequest, match="no runtime 'python'; there is wasm-python, wasm-javascript"):
            await opened.create("another", runtime="python")
        with pytest.raises(OperationFailed, match="one of the runtime python: it needs Linux"):
            await (await opened.notebook("old")).add_cell("1")
    with pytest.raises(InvalidRequest, match=r"The setting kernel\.runtime is python: it needs Linux"):
        async with quire.open(tmp_path / "data", kernel_runtime="python", **keywords(settings)):
            pass
