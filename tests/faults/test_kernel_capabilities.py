"""Capabilities where a kernel's state moves: rolled back, branched, asleep on disk, forked, interrupted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from tests.support.notebooks import Book, asleep, made, new_book
from tests.support.quick_backend import Quick, install
from tests.support.servers import SLEEPY, roomy_client, text

NATIVE = """
class Notes:
    name = "notes"
    def __init__(self): self.kept = []
    def describe(self): return "Keeps notes."
    def add(self, text: str) -> int:
        self.kept.append(text)
        return len(self.kept)
own = register_capability(Notes())
@capability
def twice(n: int) -> int:
    "Two times it."
    return int(quick.add(n, n))
notes.add("first")
"""


@pytest.fixture(scope="module")
async def home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Client[Any], Quick]]:
    """A server with the quick backend."""
    folder = tmp_path_factory.mktemp("home")
    quick = Quick(journal=folder / "journal")
    async with roomy_client(folder / "data") as client:
        await install(client, "quick", quick.command)
        yield client, quick
    quick.is_over()


@pytest.fixture
def quick(home: tuple[Client[Any], Quick]) -> Quick:
    """With an empty journal, but for its processes that run."""
    home[1].journal.write_text("".join(f"started {pid}\n" for pid in home[1].running()))
    return home[1]


@pytest.fixture
async def book(home: tuple[Client[Any], Quick], quick: Quick) -> AsyncIterator[Book]:
    async with new_book(home[0]) as made:
        yield made


async def test_a_rollback_ends_calls_under_way_and_the_next_is_answered(book: Book, quick: Quick) -> None:
    await book.value(
        "import asyncio\nheld = asyncio.create_task(quick.hold.aio('it'))\n"
        "await asyncio.sleep(0)\nawait quick.add.aio(1)"
    )
    await quick.is_called("hold")
    await book.protected()
    await book.value("x = 1")
    await book.ask("rollback", to=0)
    said = await book.value("try: await held\nexcept CapabilityGone as error: found = str(error)\nfound")
    assert said.startswith("quick.hold: The kernel was put back")
    assert await book.value("[await quick.add.aio(1, 2), quick.add(3, 4)]") == ["3", "7"]


async def test_after_a_rollback_and_in_a_branch_native_ones_are_as_they_were_then(book: Book) -> None:
    await book.value(NATIVE)
    await book.protected()
    assert await book.value("notes.add('second')") == 2
    branch = await book.ask("branch_notebook", at=0, name="other")
    assert not branch.is_error, text(branch)
    other = Book(client=book.client, name="other")
    await book.ask("rollback", to=0)
    for each in (book, other):
        assert await each.value("[notes.add('third'), twice(4), own.kept]") == [2, 8, ["first", "third"]]
        state = (await each.ask("state")).structured_content
        assert "__capabilities__" not in state["variables"]
        assert any(line.startswith("notes:") for line in state["capabilities"])


async def test_a_kernel_that_slept_on_disk_has_its_capabilities_and_their_results(data_dir: Path) -> None:
    quick = Quick(journal=data_dir.parent / "journal")
    async with roomy_client(data_dir, **SLEEPY) as client:
        await install(client, "quick", quick.command)
        book = await made(client, "main")
        await book.value(NATIVE)
        await book.value(
            "try: quick.fail('so')\nexcept ToolError as error: failed = error\n"
            "kept = [quick, quick.add, quick.person('Bo'), quick.echo_text('x'), quick.picture(), quick.link(), caps]"
        )
        await asleep(book)
        answer = await book.run(
            "[kept[0] is quick, kept[1] is quick.add, kept[1](2, 3), kept[2].home.city, kept[3].size, "
            "kept[4].mime, kept[5].read(), kept[6] is caps, failed.tool, failed.args_given]"
        )
        assert not answer.is_error, text(answer)
        expected = [True, True, "5", "Bern", 1, "image/png", "at notes://all", True, "quick.fail", {"why": "so"}]
        assert answer.structured_content["return_value"] == expected
        assert "Not restored" not in text(answer)
        assert await book.value("[own.add('second'), twice(4), 'notes' in caps, 'twice' in caps]") == [2, 8, True, True]
    quick.is_over()


async def test_a_process_that_the_cell_started_is_told_where_to_call_from(book: Book) -> None:
    found = await book.value(
        "import multiprocessing as mp\n"
        "def call(n): return quick.add(n)\n"
        "with mp.get_context('fork').Pool(1) as pool:\n"
        "    try: pool.map(call, [1])\n"
        "    except CapabilityGone as error: said = str(error)\n"
        "[said, quick.add(1)]"
    )
    assert "from the notebook's own process" in found[0] and found[1] == "2"


@pytest.mark.parametrize("call_", ["quick.hold('it')", "await quick.hold.aio('it')"])
async def test_an_interrupt_ends_the_call_here_and_at_the_backend(book: Book, quick: Quick, call_: str) -> None:
    results: list[Any] = []

    async def run() -> None:
        results.append(await book.run(call_))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await quick.is_called("hold")
        await book.ask("interrupt")
    assert results[0].structured_content["state"] == "INTERRUPTED"
    assert await book.value("quick.add(1, 2)") == "3"
    await quick.is_told_to_stop("it")


async def test_cleared_and_reset_variables_leave_capabilities_as_they_are(book: Book) -> None:
    await book.value(NATIVE)
    for code in ("globals().clear()", "%reset -f"):
        await book.run(code)
        assert await book.value("[quick.add(1), twice(2), notes.add('x') > 1]") == ["2", 4, True]


async def test_checkpoints_stay_clean_with_capabilities_in_use(book: Book) -> None:
    await book.value(NATIVE)
    await book.value("import asyncio\nlater = asyncio.create_task(quick.hold.aio('it'))\nawait quick.add.aio(1)")
    await book.protected()
    assert [each["quality"] for each in await book.checkpoints()] == ["clean", "clean"]
