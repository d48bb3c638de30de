"""No output is lost, whichever way it is written and whatever its bytes are."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from tests.support.notebooks import Book, indented, new_book, waits_for
from tests.support.processes import forget_peak, resident
from tests.support.servers import QUICK, stdio_client, text
from tests.support.waiting import appears, until

MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        pytest.param(
            "import os\nprint('before')\nif (child := os.fork()) == 0:\n    print('child')\n    os._exit(0)\n"
            "os.waitpid(child, 0)\nprint('parent')",
            ["before", "child", "parent"],
            id="a child that exits",
        ),
        pytest.param(
            "import os\nprint('held', end=' ')\nif (child := os.fork()) == 0:\n    print('child')\nelse:\n"
            "    os.waitpid(child, 0)\n    print('parent')",
            ["held child", "parent"],
            id="a child that runs to the cell's end",
        ),
        pytest.param(
            "import os, sys\nif (child := os.fork()) == 0:\n    print('child')\n    sys.exit(5)\n"
            "print('status', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
            ["child", "status 5"],
            id="a child that leaves with a code",
        ),
        pytest.param(
            "import multiprocessing\nfork = multiprocessing.get_context('fork')\n"
            "def work(n):\n    print('child', n)\n"
            "for n in range(3):\n    child = fork.Process(target=work, args=(n,))\n    child.start()\n"
            "    child.join()\nprint('parent')",
            ["child 0", "child 1", "child 2", "parent"],
            id="multiprocessing",
        ),
        pytest.param(
            "import multiprocessing\ndef work(n):\n    print(f'child {n}', flush=True)\n    return n * n\n"
            "with multiprocessing.get_context('fork').Pool(2) as pool:\n    squares = pool.map(work, range(20))\n"
            "print(sum(squares))",
            [*(f"child {n}" for n in range(20)), "2470"],
            id="a pool",
        ),
        pytest.param(
            "import os, threading\ndef child():\n    if (pid := os.fork()) == 0:\n        print('child')\n"
            "        os._exit(0)\n    os.waitpid(pid, 0)\n"
            "thread = threading.Thread(target=child)\nthread.start()\nthread.join()\nprint('parent')",
            ["child", "parent"],
            id="a fork in a thread",
        ),
    ],
)
async def test_what_children_and_parent_print_is_kept_once(book: Book, code: str, lines: list[str]) -> None:
    found = (await book.run(code)).structured_content
    assert (found["state"], sorted(found["stdout"].splitlines())) == ("SUCCESS", sorted(lines))
    assert (found["stdout"].splitlines()[-1], found["stderr"]) == (lines[-1], "")
    assert await book.value("40 + 2") == 42


async def test_a_forked_child_that_raises_shows_its_traceback_and_leaves_with_1(book: Book) -> None:
    result = await book.run(
        "import os\nif (child := os.fork()) == 0:\n    1 / 0\n"
        "print('status', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    found = result.structured_content
    assert (found["state"], found["stdout"]) == ("SUCCESS", "status 1\n")
    assert "ZeroDivisionError" in found["stderr"] and "quire worker" not in found["stderr"]


async def test_a_child_that_outlives_its_cell_prints_into_a_later_one(book: Book, tmp_path: Path) -> None:
    go, gone = tmp_path / "go", tmp_path / "gone"
    await book.run(f"import subprocess\nsubprocess.Popen(['sh', '-c', {waiting_shell(go, 'late', gone)!r}])")
    go.touch()
    await appears(gone)
    assert (await book.run("print('now')")).structured_content["stdout"] == "late\nnow\n"


async def test_threads_print_during_the_cell_and_after_it_and_nothing_is_lost(book: Book, tmp_path: Path) -> None:
    go, gone = tmp_path / "go", tmp_path / "gone"
    code = (
        "import threading\nbegun = threading.Event()\n"
        "def work():\n    print('during')\n    begun.set()\n" + indented(waits_for(go)) + "    print('after')\n"
        f"    open({str(gone)!r}, 'w').close()\n"
        "threading.Thread(target=work).start()\nassert begun.wait(30)\nprint('end')"
    )
    assert (await book.run(code)).structured_content["stdout"] == "during\nend\n"
    go.touch()
    await appears(gone)
    await book.ask("state")  # a question between must not swallow it
    assert (await book.run("print('next')")).structured_content["stdout"] == "after\nnext\n"


async def test_what_a_thread_displays_between_two_cells_is_shown_with_the_next(book: Book, tmp_path: Path) -> None:
    go, gone = tmp_path / "go", tmp_path / "gone"
    await book.run(
        "import threading\ndef work():\n" + indented(waits_for(go)) + "    display('shown between')\n"
        f"    open({str(gone)!r}, 'w').close()\n"
        "threading.Thread(target=work).start()"
    )
    go.touch()
    await appears(gone)
    asked = await book.ask("state")
    assert "gone" not in asked.structured_content["variables"] and "work" in text(asked)
    await book.run("x = 1")
    assert "shown between" in await book.shown(1)
    assert "x" in (await book.ask("state")).structured_content["variables"]


async def test_megabytes_printed_between_two_cells_are_all_kept(book: Book, tmp_path: Path) -> None:
    go, gone = tmp_path / "go", tmp_path / "gone"
    await book.run(
        "import threading\ndef work():\n" + indented(waits_for(go)) + "    print('x' * 3_000_000)\n"
        f"    open({str(gone)!r}, 'w').close()\n"
        "threading.Thread(target=work).start()"
    )
    go.touch()
    await appears(gone)
    await book.run("print('next')")
    assert (await book.whole(1))[0].text == "x" * 3_000_000 + "\nnext\n"


async def test_threads_that_write_to_both_streams_never_lock_up_the_kernel(book: Book) -> None:
    code = (
        "import sys, threading\n"
        "def work(n):\n    for _ in range(300):\n        print('o' * 999)\n        print('e' * 999, file=sys.stderr)\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]\n"
        "for thread in threads: thread.start()\n"
        "for n in range(300): display(n)\n"
        "for thread in threads: thread.join()"
    )
    result = await book.run(code, 20)
    assert result.structured_content["state"] == "SUCCESS", text(result)[-600:]
    exported = json.loads((await book.client.read_resource(f"notebook://{book.name}/ipynb"))[0].text)
    streams = [output for output in exported["cells"][0]["outputs"] if output["output_type"] == "stream"]
    whole = "".join("".join(output["text"]) for output in streams)
    assert (whole.count("o"), whole.count("e")) == (4 * 300 * 999, 4 * 300 * 999)


async def test_a_thread_that_prints_on_and_on_survives_many_cells(book: Book) -> None:
    await book.run(
        "import threading\ngo_on = True\ndef chat():\n    while go_on: print('chat ' * 20_000)\n"
        "thread = threading.Thread(target=chat)\nthread.start()"
    )
    for number in range(40):
        result = await book.run(f"{number} + 1")
        assert result.structured_content["return_value"] == number + 1, text(result)[-600:]
    assert await book.value("go_on = False\nthread.join()\n40 + 2") == 42


async def test_a_thread_that_floods_does_not_delay_a_checkpoint(book: Book) -> None:
    """What it prints meanwhile is more than is kept: it must be taken all the same, or it waits holding stdout."""
    await book.run(
        "import os, threading, time\ngo_on = True\nos.register_at_fork(before=lambda: time.sleep(2))\n"
        "def chat():\n    while go_on: print('chat ' * 20_000)\nthread = threading.Thread(target=chat)\nthread.start()"
    )
    result = await book.run("go_on = False\nthread.join()\n40 + 2")
    assert result.structured_content["return_value"] == 42, text(result)[-600:]
    assert "notice" not in result.structured_content
    places = range(len((await book.cell(1))["outputs"]))
    shown = "".join([part.text for place in places for part in await book.whole(1, place)])
    assert "bytes that were printed between two runs are left out" in shown or "bytes of output dropped" in shown


FLOODS = [
    pytest.param("print('x' * MB)", id="print"),
    pytest.param("print('x' * MB)\n        print('y', file=sys.stderr)", id="both streams"),
    pytest.param("display(s)", id="display"),
]


@pytest.mark.parametrize("write", FLOODS)
async def test_a_flood_between_two_cells_does_not_fill_the_server(book: Book, write: str) -> None:
    server = await book.server()
    before = resident(server)
    started = await book.run(
        "import sys, threading\nMB = 1_000_000\ns = 'x' * MB\nwritten = 0\ndef flood():\n    global written\n"
        f"    while written < 200:\n        {write}\n        written += 1\n"
        "threading.Thread(target=flood, daemon=True).start()",
        timeout=5,
    )
    assert started.structured_content["state"] == "SUCCESS", text(started)[-600:]

    async def over_or_held_back() -> bool:
        """The flood has ended, or stands still because the server takes no more."""
        seen = resident(server)
        await anyio.sleep(0.5)  # the span over which it stands still
        return resident(server) == seen

    await until(over_or_held_back, "the flood stands")
    assert resident(server) - before < 100 * 2**20
    assert await book.value("40 + 2") == 42


async def test_subprocess_output_is_in_order_with_what_python_prints(book: Book) -> None:
    await book.run(
        "import subprocess, sys, os\nprint(1)\nsubprocess.run(['sh', '-c', 'echo 2; echo 3'])\nprint(4)\n"
        "subprocess.run(['sh', '-c', 'echo 5 >&2'])\nprint(6)\nprint(7, file=sys.stderr)\nos.system('echo 8')\n"
        "print(9, end='')\nsubprocess.run(['echo'])\nprint(10)"
    )
    outputs = (await book.cell(0))["outputs"]
    assert "".join(output["text"] for output in outputs).split() == [str(n) for n in range(1, 11)]
    assert [output["text"] for output in outputs][:4] == ["1\n2\n3\n4\n", "5\n", "6\n", "7\n"]


async def test_what_a_subprocess_prints_is_seen_while_it_runs(book: Book, tmp_path: Path) -> None:
    go, gone = tmp_path / "go", tmp_path / "gone"
    results: list[Any] = []
    code = (
        "import subprocess\nprint('python')\n"
        f"subprocess.run(['sh', '-c', 'echo live; ' + {waiting_shell(go, 'done', gone)!r}])"
    )

    async def run() -> None:
        results.append(await book.run(code))

    async def live() -> bool:
        listed = await book.ask("list_cells")
        return listed.structured_content["total"] == 1 and await book.shown(0) == "python\nlive\n"

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await until(live, "its line is shown")
        go.touch()
    assert results[0].structured_content["stdout"] == "python\nlive\ndone\n"


async def test_after_a_restore_output_is_still_seen_while_it_runs(book: Book, tmp_path: Path) -> None:
    go = tmp_path / "go"
    await book.run("import os, subprocess\nlines = ['a', 'b']")
    crashed = await book.run("print('partial')\nlines.clear()\nos.abort()")
    assert crashed.structured_content["stdout"] == "partial\n"
    results: list[Any] = []

    async def run() -> None:
        results.append(await book.run(f"print(lines)\nos.system('echo child')\n{waits_for(go)}print('done')"))

    async def live() -> bool:
        listed = await book.ask("list_cells")
        return listed.structured_content["total"] == 3 and await book.shown(2) == "['a', 'b']\nchild\n"

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await until(live, "its lines are shown")
        go.touch()
    assert results[0].structured_content["stdout"] == "['a', 'b']\nchild\ndone\n"


async def test_what_c_code_prints_is_kept_in_order(book: Book) -> None:
    result = await book.run(
        "import ctypes\nlibc = ctypes.CDLL(None)\nprint('python 1')\n_ = libc.printf(b'c %d\\n', 2)\n"
        "print('python 3')\n_ = libc.puts(b'c 4')\n_ = libc.printf(b'c without an end')"
    )
    assert result.structured_content["stdout"] == "python 1\nc 2\npython 3\nc 4\nc without an end"


async def test_bytes_that_are_not_utf8_are_shown_replaced_and_kept_as_they_are(book: Book) -> None:
    result = await book.run("import os\n_ = os.write(1, b'\\xff\\xfe')\nprint('é')")
    assert result.structured_content["stdout"] == "\ufffd\ufffdé\n"
    forms = {each.mime_type: each for each in await book.whole(0)}
    assert forms["text/plain"].text == "\ufffd\ufffdé\n"
    assert base64.b64decode(forms["application/octet-stream"].blob) == b"\xff\xfe" + "é\n".encode()


async def test_text_bytes_that_happen_to_be_utf8_come_back_from_the_store_as_bytes(book: Book) -> None:
    await book.run("display({'application/octet-stream': b'plain', 'text/plain': 'p'}, raw=True)")
    forms = {each.mime_type: each for each in await book.whole(0)}
    assert base64.b64decode(forms["application/octet-stream"].blob) == b"plain"


async def test_a_line_of_two_megabytes_is_kept_whole(book: Book) -> None:
    result = await book.run("print('é' * 1_000_000)")
    assert result.structured_content["state"] == "SUCCESS" and "left out" in text(result)
    assert (await book.whole(0))[0].text == "é" * 1_000_000 + "\n"


async def test_a_character_that_arrives_in_pieces_is_shown_whole(book: Book, tmp_path: Path) -> None:
    go, results = tmp_path / "go", list[Any]()
    first, second = (f"_ = os.write(1, {part!r})\n" for part in ("\U0001f600".encode()[:2], "\U0001f600".encode()[2:]))

    async def run() -> None:
        results.append(await book.run(f"import os\n{first}{waits_for(go)}{second}"))

    async def half() -> bool:
        listed = await book.ask("list_cells")
        return listed.structured_content["total"] == 1 and "\ufffd" in await book.shown(0)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await until(half, "the first half is there")
        go.touch()
    assert results[0].structured_content["stdout"] == "\U0001f600"
    assert [form.mime_type for form in await book.whole(0)] == ["text/plain"]


async def test_a_flood_is_capped_with_what_was_dropped_and_the_server_stays_small(book: Book) -> None:
    server = await book.server()
    forget_peak(server)
    before = resident(server)
    result = await book.run("for n in range(100):\n    print(str(n) * 500_000 if n < 10 else 'x' * 1_000_000)", 60)
    assert result.structured_content["state"] == "SUCCESS"
    whole = (await book.whole(1))[0].text
    printed = 10 * 500_001 + 90 * 1_000_001
    assert kept(whole) + dropped(whole) == printed
    assert whole.startswith("0" * 500_000) and whole.endswith("x" * 1_000_000 + "\n")
    assert resident(server, "VmHWM") - before < 100 * 2**20


@pytest.fixture(scope="module")
async def small(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client[Any]]:
    """A server that keeps 10,000 bytes of a run."""
    folder = tmp_path_factory.mktemp("small") / "data"
    async with stdio_client(folder, max_output_bytes=10_000, **QUICK) as client:
        yield client


async def test_the_cap_keeps_beginning_and_end_and_counts_the_rest(small: Client[Any]) -> None:
    cases = [
        ("print('a' * 9_000)", 9_001, 0),  # under the cap: nothing is dropped, nothing is said
        ("print('a' * 30_000)", 30_001, None),
        ("for n in range(3_000): print('x' * 9)", 30_000, None),
        ("import sys\nfor n in range(1_500):\n    print('x' * 9)\n    print('y' * 9, file=sys.stderr)", 30_000, None),
    ]
    async with new_book(small) as book:
        for number, (code, printed, expected) in enumerate(cases):
            await book.run(code)
            outputs = len((await book.cell(number))["outputs"])
            whole = "".join([(await book.whole(number, index))[0].text for index in range(outputs)])
            assert kept(whole) + dropped(whole) == printed, code
            assert expected is None or dropped(whole) == expected


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
async def test_no_character_is_torn_where_the_beginning_meets_the_end(small: Client[Any], shift: int) -> None:
    line = "a" * shift + "\U0001f600" * 2_000
    async with new_book(small) as book:
        await book.run(f"print({line!r})")
        assert len((await book.cell(0))["outputs"]) == 1
        assert [form.text for form in await book.whole(0)] == [line + "\n"]


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import sys\nsys.stdout.close()", id="closed"),
        pytest.param("import sys\nsys.stdout = None", id="none"),
        pytest.param("import sys\nsys.stdout = sys.__stdout__ = None", id="both none"),
        pytest.param("import io, sys\nsys.stdout = io.StringIO()", id="replaced"),
        pytest.param("import sys\nsys.stdout = object()", id="replaced by no file"),
        pytest.param("import sys\nsys.stdout.detach()", id="detached"),
        pytest.param("import sys\ndel sys.stdout, sys.stderr", id="deleted"),
        pytest.param("import os\nos.close(1)", id="descriptor closed"),
        pytest.param("import os\nos.close(1)\nkept = open('taken', 'w')", id="descriptor taken by a file"),
        pytest.param("import os\nos.dup2(os.open(os.devnull, os.O_WRONLY), 1)", id="descriptor redirected"),
        pytest.param("import os\nos.closerange(0, 3)", id="all three closed"),
    ],
)
async def test_whatever_a_cell_did_to_stdout_the_next_one_prints(book: Book, code: str) -> None:
    await book.run("x = 41")
    await book.run(code)
    found = (await book.run("import os\nprint('here')\n_ = os.system('echo there')\nx + 1")).structured_content
    assert (found["state"], found["stdout"], found["return_value"]) == ("SUCCESS", "here\nthere\n", 42)


async def test_stdout_redirected_inside_a_cell_goes_where_it_was_sent(book: Book) -> None:
    found = await book.value(
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as into:\n    print('caught')\n"
        "into.getvalue()"
    )
    assert found == "caught\n"


def waiting_shell(go: Path, says: str, gone: Path) -> str:
    return f"while [ ! -e {go} ]; do sleep 0.01; done; echo {says}; touch {gone}"


NOTE = re.compile(r"\n\[\.\.\. ([\d,]+) bytes of output dropped here: [^\]]*\]\n")


def kept(whole: str) -> int:
    return len(NOTE.sub("", whole))


def dropped(whole: str) -> int:
    return sum(int(count.replace(",", "")) for count in NOTE.findall(whole))
