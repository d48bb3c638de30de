"""What cells show, what becomes of it later, and what a model reads of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import nbformat
import pytest
from fastmcp import Client
from fastmcp.exceptions import McpError

from tests.support.notebooks import Book, new_book, waits_for
from tests.support.servers import call, stdio_client, text
from tests.support.waiting import DEADLINE, appears, until


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client[Any]]:
    """One for the file, as it is out of the box."""
    async with stdio_client(tmp_path_factory.mktemp("display") / "data") as connected:
        yield connected


@pytest.fixture
async def book(server: Client[Any]) -> AsyncIterator[Book]:
    async with new_book(server) as made:
        yield made


async def outputs(book: Book, code: str) -> list[dict[str, Any]]:
    """What a new cell shows, with what is read of it."""
    done = await book.ask("add_cell", code=code)
    assert not done.is_error, text(done)
    found: list[dict[str, Any]] = done.structured_content["outputs"]
    return found


async def read(book: Book, code: str) -> list[str]:
    return [each.get("text", each["type"]) for each in await outputs(book, code)]


@contextlib.asynccontextmanager
async def in_background(book: Book, code: str) -> AsyncIterator[None]:
    """Its last cell, which runs while the block does and until it ends by itself."""
    added = await book.ask("add_cell", code=code, execute=False)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(book.ask, "execute_cell", cell_id_or_number=added.structured_content["cell_id"]))
        yield


async def kept(book: Book, number: int) -> list[str]:
    return [each.get("text", each["type"]) for each in (await book.cell(number))["outputs"]]


async def exported(book: Book) -> Any:
    document = nbformat.reads((await book.client.read_resource(f"notebook://{book.name}/ipynb"))[0].text, as_version=4)
    nbformat.validate(document)
    return document


# Displays that change


async def test_an_update_takes_the_place_of_what_was_shown_under_its_id(book: Book) -> None:
    code = "shown = display('first', display_id='a')\nprint('between')\nshown.update('second')\nprint('after')"
    assert await read(book, code) == ["'second'", "between\nafter\n"]
    assert await kept(book, 0) == ["'second'", "between\nafter\n"]


async def test_two_that_are_shown_under_one_id_change_together(book: Book) -> None:
    code = "shown = display(1, display_id=True)\nshown.display(2)\nshown.update(3)\nNone"
    assert await read(book, code) == ["3", "3"]


async def test_an_update_in_a_running_cell_is_seen_at_once(book: Book, tmp_path: Path) -> None:
    go = tmp_path / "go"
    code = f"shown = display('before', display_id='x')\nshown.update('now')\n{waits_for(go)}shown.update('end')"

    async def now() -> bool:
        return await kept(book, 0) == ["'now'"]

    async with in_background(book, code):
        await until(now, "the update is seen")
        go.touch()
    assert await kept(book, 0) == ["'end'"]


async def test_an_update_of_an_unknown_id_shows_nothing(book: Book) -> None:
    await outputs(book, "display('stays', display_id='a');")
    assert await read(book, "from IPython.display import update_display\nupdate_display('x', display_id='none')") == []
    assert await kept(book, 0) == ["'stays'"]


async def test_an_update_that_names_no_id_changes_nothing(book: Book) -> None:
    await outputs(book, "display('stays')")
    await outputs(book, "display('too')\nget_ipython().display_pub.publish({'text/plain': 'x'}, update=True)")
    assert (await kept(book, 0), await kept(book, 1)) == (["'stays'"], ["'too'"])


async def test_ids_that_are_no_words_find_their_own_cell_only(book: Book) -> None:
    for number, name in enumerate(["a%", "a_", 'a"b', "é☃", "a"]):
        await outputs(book, f"display({number}, display_id={name!r});")
    await outputs(book, "from IPython.display import update_display\nupdate_display('new', display_id='a%')")
    await outputs(book, "update_display('quoted', display_id='a\"b')")
    assert [await kept(book, n) for n in range(5)] == [["'new'"], ["1"], ["'quoted'"], ["3"], ["4"]]


async def test_an_update_reaches_its_own_notebook_only(server: Client[Any], book: Book) -> None:
    await outputs(book, "display('mine', display_id='shared');")
    async with new_book(server) as other:
        await outputs(other, "display('theirs', display_id='shared');")
        await outputs(other, "from IPython.display import update_display\nupdate_display('new', display_id='shared')")
        assert await kept(other, 0) == ["'new'"]
    assert await kept(book, 0) == ["'mine'"]


async def test_an_update_by_a_cell_that_fails_counts(book: Book) -> None:
    await outputs(book, "shown = display('old', display_id=True)")
    failed = await book.ask("add_cell", code="shown.update('new')\n1/0")
    assert failed.is_error and await kept(book, 0) == ["'new'"]


# Outputs that are taken back


async def test_a_cleared_output_is_gone_at_once_or_when_the_next_comes(book: Book) -> None:
    await outputs(book, "from IPython.display import clear_output")
    assert await read(book, "print('old')\ndisplay(1)\nclear_output()\nprint('new')") == ["new\n"]
    assert await read(book, "print('old')\nclear_output()") == []
    assert await read(book, "print('old')\nclear_output(wait=True)") == ["old\n"]
    assert await read(book, "for n in range(100):\n    clear_output(wait=True)\n    print(n)") == ["99\n"]
    assert await read(book, "print('old')\nclear_output(wait=True)\ndisplay('new')") == ["'new'"]


async def test_an_error_after_a_clear_stands_alone(book: Book) -> None:
    failed = await book.ask(
        "add_cell", code="from IPython.display import clear_output\nprint('old')\nclear_output(True)\n1/0"
    )
    assert failed.is_error
    assert [each["type"] for each in failed.structured_content["outputs"]] == ["error"]


async def test_what_was_cleared_does_not_come_back_with_a_crash(book: Book, tmp_path: Path) -> None:
    code = "import os\nfrom IPython.display import clear_output\nprint('stale', flush=True)\n"
    code += waits_for(tmp_path / "go") + "clear_output()\nprint('fresh', flush=True)\nos.kill(os.getpid(), 9)"

    async def seen() -> bool:
        return await kept(book, 0) == ["stale\n"]

    async with in_background(book, code):
        await until(seen, "the first line is shown")
        (tmp_path / "go").touch()
    cell = await book.cell(0)
    assert cell["state"] == "CRASHED"
    assert cell["outputs"][0]["text"] == "fresh\n" and "stale" not in str(cell["outputs"])


async def test_a_flood_of_updates_and_clears_leaves_what_is_last(book: Book) -> None:
    code = """
from IPython.display import clear_output
shown = display(0, display_id='n')
for n in range(1_000):
    shown.update(n)
for n in range(1_000):
    print('x' * 1_000); clear_output()
display(n, display_id='m');
"""
    assert await read(book, code) == ["999"]


# What a model reads


async def test_progress_is_read_as_its_last_line_and_kept_whole(book: Book) -> None:
    shown = await outputs(book, "for n in range(50):\n    print(f'\\r{n * 2}%', end='')\nprint('\\rdone!')")
    assert shown[0]["text"] == "done!\n"
    whole = (await book.whole(0))[0].text
    assert whole.startswith("\r0%\r2%") and whole.endswith("98%\rdone!\n")
    document = await exported(book)
    assert document.cells[0].outputs[0].text == whole


async def test_a_bar_of_tqdm_is_one_line(book: Book) -> None:
    shown = await outputs(book, "from tqdm import tqdm\nfor n in tqdm(range(300), mininterval=0): pass")
    assert len(shown) == 1 and shown[0]["text"].count("\n") <= 1
    assert "300/300" in shown[0]["text"] and "1/300" not in shown[0]["text"].replace("300/300", "")
    assert (await book.whole(0))[0].text.count("\r") > 100


async def test_colours_are_not_read(book: Book) -> None:
    assert await read(book, "print('\\x1b[1;31mred\\x1b[0m')") == ["red\n"]
    assert (await book.whole(0))[0].text == "\x1b[1;31mred\x1b[0m\n"


async def test_answers_hold_no_8_bit_terminal_codes(book: Book) -> None:
    assert await read(book, "print('\\x9b31mred\\x9b0m \\x9d0;title\\x07text')") == ["red text\n"]
    failed = await book.run("raise ValueError('\\x9b2Jgone')")
    assert "gone" in text(failed) and "\x9b" not in text(failed)
    assert failed.structured_content["error_message"] == "gone"


async def test_stderr_is_marked_and_apart(book: Book) -> None:
    done = await book.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('out again')")
    assert done.structured_content["stdout"] == "out\nout again\n" and done.structured_content["stderr"] == "err\n"
    assert text(done).splitlines()[:3] == ["out", "[stderr] err", "out again"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("HTML('<h1>Title</h1><script>hidden()</script><p>words &amp; more</p>')", "Title\nwords & more"),
        ("Markdown('# Title\\n*words*')", "# Title\n*words*"),
        ("Latex('$x^2$')", "$x^2$"),
        ("Math('x^2')", "$\\displaystyle x^2$"),
        ("JSON({'a': 1})", '{"a": 1}'),
        ("Javascript('alert(1)')", "alert(1)"),
        ("Code('x = 1', language='python')", "x = 1"),
    ],
)
async def test_what_says_nothing_of_itself_is_read_by_its_content(book: Book, code: str, says: str) -> None:
    shown = await outputs(book, f"from IPython.display import *\n{code}")
    assert [each["text"] for each in shown] == [says]


async def test_objects_are_read_by_their_own_text_or_by_what_they_show(book: Book) -> None:
    code = """
class Told:
    def __repr__(self): return 'Told(1)'
    def _repr_html_(self): return '<b>html</b>'
class Silent:
    def _repr_html_(self): return '<b>html</b>'
class Bare: pass
class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'text/markdown': '**m**', 'text/html': '<b>h</b>'}
"""
    await outputs(book, code)
    assert await read(book, "display(Told(), Silent(), Bundle())") == ["Told(1)", "html", "**m**"]
    assert (await read(book, "Bare()"))[0].startswith("<__main__.Bare")


async def test_a_long_output_is_clipped_and_many_are_counted(book: Book) -> None:
    shown = await outputs(book, "'x' * 100_000")
    assert len(shown[0]["text"]) < 9_000 and "characters left out; whole: " in shown[0]["text"]
    assert len((await book.whole(0))[0].text) == 100_002
    done = await book.ask("add_cell", code="for n in range(200): display('y' * 2_000)")
    assert len(text(done)) < 40_000 and "left out for length" in text(done)
    assert len(done.structured_content["outputs"]) == 200


async def test_html_made_to_be_slow_does_not_hold_up_the_server(book: Book) -> None:
    with anyio.fail_after(DEADLINE):
        await outputs(book, "display({'text/html': '<script>' * 20_000}, raw=True)")
        await call(book.client, "list_notebooks")


# Data frames


FRAMES = {
    "pandas": "import pandas as pd\nframe = pd.DataFrame({'n': range(250), 's': ['a,\"b\"'] * 250})\nframe",
    "polars": "import polars as pl\nframe = pl.DataFrame({'n': range(250), 's': ['a,\"b\"'] * 250})\nframe",
    "pyarrow": "import pyarrow as pa\nframe = pa.table({'n': list(range(250)), 's': ['a,\"b\"'] * 250})\nframe",
}


async def rows(book: Book, number: int, start: object, index: object = 0) -> str:
    uri = f"notebook://{book.name}/cell/{number}/output/{index}/rows/{start}"
    found: str = (await book.client.read_resource(uri))[0].text
    return found


async def no_rows(book: Book, number: int, start: object = 0, index: object = 0) -> str:
    with pytest.raises(McpError) as refused:
        await rows(book, number, start, index)
    return str(refused.value)


@pytest.mark.parametrize("library", FRAMES)
async def test_a_frame_is_read_in_few_characters_and_paged_through(book: Book, library: str) -> None:
    done = await book.ask("add_cell", code=FRAMES[library], timeout=60)
    shown = done.structured_content["outputs"]
    assert [each["type"] for each in shown] == ["dataframe"]
    lines = shown[0]["text"].splitlines()
    assert lines[0].startswith("250 rows x 2 columns: n ") and lines[6] == "… 240 rows more …"
    assert f"[other rows: {shown[0]['uri']}/rows/0]" in text(done)
    first = (await book.client.read_resource(f"{shown[0]['uri']}/rows/0"))[0]
    assert first.mime_type == "text/csv" and first.text.splitlines()[:2] == [",n,s", '0,0,"a,""b"""']
    assert first.text.splitlines()[-1] == "[rows 0 to 99 of 250]"
    assert (await rows(book, 0, 200)).splitlines()[1].startswith("200,200,")
    assert "[rows 200 to 249 of 250]" in await rows(book, 0, 200)
    for past in (250, 900, 10**12):
        assert (await rows(book, 0, past)).splitlines()[-1].endswith("there are 250]")
    assert not any(mime.startswith("text/vnd.quire") for mime in (await exported(book)).cells[0].outputs[0].data)


async def test_rows_that_cannot_be_read_say_why(book: Book, tmp_path: Path) -> None:
    await outputs(book, "import pandas as pd\npd.DataFrame({'n': range(50)})")
    await outputs(book, "frame = pd.DataFrame({'n': range(50)})\ndisplay(frame)\nprint('text')")
    assert "to 49 of 50]" in await rows(book, 1, 0)
    assert "[rows 0 to 49 of 50]" in await rows(book, 1, -5)
    assert "is no table" in await no_rows(book, 1, index=1) and "is no table" in await no_rows(book, 1, index=9)
    for bad in ("x", "1.5"):
        assert await no_rows(book, 1, start=bad)
    await outputs(book, "import gc\ndel frame\ngc.collect()\nNone")
    assert "no longer in the kernel" in await no_rows(book, 1)
    assert "to 49 of 50]" in await rows(book, 0, 0)  # Out has it
    go = tmp_path / "go"
    async with in_background(book, f"open({str(tmp_path / 'on')!r}, 'w')\n{waits_for(go)}"):
        await appears(tmp_path / "on")
        said = await no_rows(book, 0)
        go.touch()
    assert "A cell runs now" in said
    await book.ask("reset")
    assert "Run the cell again" in await no_rows(book, 0)
    await book.run("1")  # another kernel, which has no such table
    assert "Run the cell again" in await no_rows(book, 0)


async def test_rows_of_large_cells_do_not_cost_the_kernel(book: Book) -> None:
    await outputs(book, "import pandas as pd\nframe = pd.DataFrame({'s': ['x' * 1_500_000] * 100})\nframe")
    with contextlib.suppress(McpError):
        assert len(await rows(book, 0, 0)) < 20_000_000
    after = await book.run("len(frame)")
    assert after.structured_content["return_value"] == 100 and "notice" not in after.structured_content  # BUG 19


async def test_an_update_from_a_thread_reaches_its_cell(book: Book) -> None:
    await outputs(book, "import threading\nshown = display('old', display_id='t')")
    assert await read(book, "t = threading.Thread(target=shown.update, args=['new'])\nt.start()\nt.join()") == []
    assert await kept(book, 0) == ["'new'"]


async def test_a_frame_that_is_updated_in_place_is_a_frame_again(book: Book) -> None:
    await outputs(book, "import pandas as pd\nshown = display(pd.DataFrame({'a': [1]}), display_id='f')")
    await outputs(book, "other = pd.DataFrame({'b': [2, 3]})\nshown.update(other)")
    assert (await kept(book, 0))[0].startswith("2 rows x 1 columns: b int64")
    assert (await rows(book, 0, 0)).startswith(",b\n")


async def test_a_styled_or_grouped_frame_and_a_series_are_read_by_their_words(book: Book) -> None:
    await outputs(book, "import pandas as pd\nframe = pd.DataFrame({'a': [1, 2]})")
    assert "Name: a" in (await read(book, "frame['a']"))[0]
    assert "object at 0x" not in (await read(book, "frame.style.hide(axis='index')"))[0]


# Widgets


async def test_a_widget_is_read_as_it_is_now_and_exported_with_its_state(book: Book) -> None:
    await outputs(book, "import ipywidgets as w\nslider = w.IntSlider(value=3, description='n')\nslider")
    assert "value=3" in (await kept(book, 0))[0]
    await outputs(book, "slider.value = 42")
    assert "value=42" in (await kept(book, 0))[0]
    document = await exported(book)
    states = document.metadata.widgets["application/vnd.jupyter.widget-state+json"]
    view = document.cells[0].outputs[0].data["application/vnd.jupyter.widget-view+json"]
    assert states["version_major"] == 2
    assert states["state"][view["model_id"]]["state"]["value"] == 42
    assert not any("quire" in mime for mime in document.cells[0].outputs[0].data)


async def test_no_widget_waits_for_a_browser(book: Book) -> None:
    code = """
import ipywidgets as w
seen = []
@w.interact(n=(0, 10), flag=True)
def f(n=2, flag=False): seen.append((n, flag)); print('n is', n)
button = w.Button(description='go')
button.on_click(lambda b: seen.append('clicked'))
button.click()
tab = w.Tab([w.Text('a'), w.VBox([w.Play(), w.FileUpload()])])
display(button, tab)
len(seen)
"""
    with anyio.fail_after(DEADLINE):
        assert (await read(book, code))[-1] == "2"


async def test_an_output_widget_keeps_what_is_shown_inside_it(book: Book) -> None:
    await outputs(book, "import ipywidgets as w\nout = w.Output()\nout")
    assert await read(book, "with out:\n    print('inside')\n    display('shown')\nprint('outside')") == ["outside\n"]
    said = await outputs(book, "[each.get('text') or each['data']['text/plain'] for each in out.outputs]")
    assert said[0]["text"] == "['inside\\n', \"'shown'\"]"
    assert await read(book, "with out:\n    1/0\nprint('goes on')") == ["goes on\n"]
    assert await read(book, "out.outputs[-1]['ename']") == ["'ZeroDivisionError'"]
    assert await read(book, "print('not caught')") == ["not caught\n"]
    document = await exported(book)
    states = document.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    inside = next(each["state"]["outputs"] for each in states.values() if each["model_name"] == "OutputModel")
    assert [each["output_type"] for each in inside] == ["stream", "display_data", "error"]


async def test_a_crash_inside_an_output_widget_leaves_later_outputs_alone(book: Book) -> None:
    await outputs(book, "import ipywidgets as w\nout = w.Output()")
    with anyio.fail_after(DEADLINE):
        await book.run(
            "import time\nwith out:\n    time.sleep(60)", timeout=1
        )  # the widget takes the interrupt for its own
    assert await read(book, "print('seen')\ndisplay(1)") == ["seen\n", "1"]
    await book.run("out.__enter__()")  # and never left
    assert await read(book, "print('seen too')") == ["seen too\n"]


async def test_a_bar_of_tqdm_for_notebooks_ends_full(book: Book) -> None:
    code = "import warnings\nwarnings.simplefilter('ignore')\nfrom tqdm.notebook import tqdm\n"
    code += "for n in tqdm(range(30)): pass"
    with anyio.fail_after(DEADLINE):
        shown = await read(book, code)
    assert len(shown) == 1 and "30/30" in shown[0]


# Numbered results


async def test_results_are_numbered_and_named_as_in_a_notebook(book: Book) -> None:
    for value in ("10", "20", "None", "30"):
        await book.run(value)
    assert await book.value("(_, __, ___, _1, _4, sorted(Out), In[2], _i)") == [
        30,
        20,
        10,
        10,
        30,
        [1, 2, 4],
        "20",
        "30",
    ]
    await book.run("_ = 'mine'")
    await book.run("99")
    assert await book.value("(_, Out[7])") == ["mine", 99]


async def test_after_a_rollback_out_is_as_it_was(book: Book) -> None:
    await book.run("'one'")
    await book.protected()
    await book.run("'two'")
    back = await book.ask("rollback", to=0)
    assert not back.is_error, text(back)
    assert await book.value("(_, sorted(Out), 'two' in In)") == ["one", [1], False]


async def test_after_a_restart_results_are_back_and_displays_can_be_updated(data_dir: Path) -> None:
    async with stdio_client(data_dir, preload="") as client:
        book = Book(client=client, name=None)
        await outputs(book, "{'a': 1}")
        await outputs(book, "(n for n in range(3))")
        await outputs(book, "x = 5\nx + 1")
        saved = await book.ask("save_state", name="mine")
        assert not saved.is_error and saved.structured_content["not_saved"] == [], text(saved)
        assert saved.structured_content["variables"] == 1
        assert list((await book.ask("state")).structured_content["variables"]) == ["x"]
        await outputs(book, "from IPython.display import *\nshown = display(HTML('<b>one</b>'), display_id='here')")
        await outputs(book, "print('beside')\ndisplay('other', display_id='other');")
        assert await read(book, "update_display(HTML('<b>two</b>'), display_id='here')") == []
        assert await kept(book, 3) == ["two"]
        forms = {content.mime_type: content.text for content in await book.whole(3)}
        assert forms["text/html"] == "<b>two</b>"
    async with stdio_client(data_dir, preload="") as client:
        book = Book(client=client, name=None)
        assert await kept(book, 3) == ["two"]
        first = await book.run("(_, _1, Out[3], _3, In[1], x)")
        assert first.structured_content["return_value"] == [6, {"a": 1}, 6, 6, "{'a': 1}", 5], text(first)
        assert "Not restored" not in first.structured_content["notice"]
        assert await book.value("sorted(Out)[-1]") == 7
        await outputs(book, "update_display(Markdown('*three*'), display_id='here')")
        assert await kept(book, 3) == ["*three*"] and await kept(book, 4) == ["beside\n", "'other'"]
        assert [content.mime_type for content in await book.whole(3)] == ["text/plain", "text/markdown"]


async def test_what_is_displayed_is_no_result(book: Book) -> None:
    await book.run("import json\nfor n in range(3): display(n)\n'end'")
    assert await book.value("list(Out)") == [1]
