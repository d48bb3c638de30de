"""The repl tool set through a real client."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from tests.support.notebooks import Book, waits_for
from tests.support.servers import call, http_client, http_server, stdio_client, text
from tests.support.waiting import DEADLINE, appears, until


async def test_the_last_expression_is_the_value_and_variables_stay(client: Client[Any]) -> None:
    first = await call(client, "execute", code="x = 20\nprint('printed')\nx + 1")
    assert not first.is_error
    assert first.structured_content["success"] and first.structured_content["return_value"] == 21
    assert first.structured_content["stdout"] == "printed\n"
    assert text(first).splitlines()[:2] == ["printed", "21"]
    second = await call(client, "execute", code="x * 2")
    assert second.structured_content["return_value"] == 40
    assert second.structured_content["cell_number"] == 1


async def test_a_failed_run_is_an_error_with_what_was_printed_before_it(client: Client[Any]) -> None:
    result = await call(client, "execute", code="print('before')\ndef f():\n    return 1 / 0\nf()")
    assert result.is_error
    found = result.structured_content
    assert (found["state"], found["error_type"], found["stdout"]) == ("ERROR", "ZeroDivisionError", "before\n")
    assert "return 1 / 0" in text(result) and "quire" not in text(result)


async def test_a_syntax_error_shows_the_caret_line(client: Client[Any]) -> None:
    result = await call(client, "execute", code="x = (1,")
    assert result.is_error and result.structured_content["error_type"] == "SyntaxError"
    assert "^" in text(result)


async def test_top_level_await_works_and_its_loop_lasts(client: Client[Any]) -> None:
    await call(client, "execute", code="import asyncio\nqueue = asyncio.Queue()\nawait queue.put(5)")
    result = await call(client, "execute", code="await queue.get()")
    assert result.structured_content["return_value"] == 5


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("{'a': [1, 2.5, None, True]}", {"a": [1, 2.5, None, True]}),
        ("float('nan')", "nan"),
        ("{1, 2}", "{1, 2}"),
        ("None", None),
        ("'é\\U0001f600'", "é\U0001f600"),
        ("object", "object"),
    ],
)
async def test_return_values_are_json_or_what_is_shown(client: Client[Any], code: str, value: object) -> None:
    assert (await call(client, "execute", code=code)).structured_content["return_value"] == value


async def test_state_lists_variables_and_functions_with_signatures(client: Client[Any]) -> None:
    area = "def area(w: int, h: int = 2) -> int:\n    '''Width times height.'''\n    return w * h"
    await call(client, "execute", code=f"items = [1, 2, 3]\nname = 'abc'\n{area}")
    found = (await call(client, "state")).structured_content
    assert found["variables"] == {"items": "list of 3", "name": "str of 3"}
    assert found["defined_functions"] == [
        {"name": "area", "signature": "(w: int, h: int = 2) -> int", "docstring": "Width times height."}
    ]
    assert found["history_length"] == 1 and found["kernel"] == "idle"


async def test_reset_empties_the_namespace_and_keeps_the_cells(client: Client[Any]) -> None:
    await call(client, "execute", code="x = 1")
    await call(client, "reset")
    result = await call(client, "execute", code="'x' in globals()")
    assert result.structured_content["return_value"] is False
    assert "notice" not in result.structured_content
    assert (await call(client, "list_cells")).structured_content["total"] == 2


async def test_a_long_output_keeps_head_and_tail_and_links_the_whole(client: Client[Any]) -> None:
    result = await call(client, "execute", code="print('head' + 'x' * 60_000 + 'tail')")
    shown = result.structured_content["stdout"]
    assert shown.startswith("head") and shown.rstrip().endswith("tail") and "characters left out" in shown
    assert len(text(result)) + len(str(result.structured_content)) < 20_000
    address = shown.split("whole: ")[1].split(" ")[0]
    whole = await client.read_resource(address)
    assert whole[0].text == "head" + "x" * 60_000 + "tail\n"


async def test_a_run_that_outlasts_the_call_goes_on_and_is_seen_and_ended(data_dir: Path) -> None:
    async with stdio_client(data_dir, patience=1) as client:
        code = "import time\nfor i in range(600):\n    print('tick', i, flush=True)\n    time.sleep(0.1)"
        result = await call(client, "execute", code=code, timeout=120)
        assert not result.is_error and result.structured_content["state"] == "RUNNING"
        assert "get_cell" in text(result)
        cell = result.structured_content["cell_id"]
        shown = await call(client, "get_cell", cell_id_or_number=cell)
        assert shown.structured_content["state"] == "RUNNING" and "tick 0" in text(shown)
        state = await call(client, "state")
        assert state.structured_content["kernel"] == "running"
        assert "can be listed when it is done" in text(state) and "no variables" not in text(state)
        stopped = await call(client, "interrupt")
        assert stopped.structured_content["state"] == "INTERRUPTED"
        kept = await call(client, "get_cell", cell_id_or_number=cell)
        assert "tick 0" in text(kept) and "KeyboardInterrupt" in text(kept)
        assert "Interrupted: Stopped by an interrupt. Variables are kept." in text(kept)
        assert (await call(client, "execute", code="i >= 0")).structured_content["return_value"] is True


async def test_progress_comes_while_a_cell_runs_with_its_last_line(client: Client[Any], tmp_path: Path) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))
        if [str(message).startswith("step") for _, _, message in heard].count(True) == 2:
            (tmp_path / "go").touch()

    code = f"import os\ni = 0\nwhile not os.path.exists({str(tmp_path / 'go')!r}):\n    print('step', i)\n    i += 1\n"
    code += "    import time\n    time.sleep(0.1)"
    await client.call_tool("execute", {"code": code, "timeout": DEADLINE}, progress_handler=listen)
    printed = [str(message).startswith("step") for _, _, message in heard]
    assert any(printed) and printed == sorted(printed)  # before the first line it may say that it begins
    assert [progress for progress, _, _ in heard] == sorted(progress for progress, _, _ in heard)


async def test_cancelling_the_request_interrupts_the_run(client: Client[Any], book: Book, tmp_path: Path) -> None:
    await call(client, "execute", code="x = 1")
    code = f"open({str(tmp_path / 'begun')!r}, 'w').close()\nwhile True: pass"
    async with anyio.create_task_group() as group:
        group.start_soon(client.call_tool, "execute", {"code": code, "timeout": 600})
        await appears(tmp_path / "begun")
        group.cancel_scope.cancel()

    async def over() -> bool:
        return bool((await book.cell(1))["state"] != "RUNNING")

    await until(over, "the run ends")
    assert (await book.cell(1))["state"] == "INTERRUPTED"
    assert (await call(client, "execute", code="x")).structured_content["return_value"] == 1


async def test_calls_on_one_notebook_queue_and_on_two_run_at_once(data_dir: Path, tmp_path: Path) -> None:
    with http_server(data_dir) as (url, _):
        async with http_client(url) as one, http_client(url) as two:
            for name in ("a", "b"):
                await call(one, "create_notebook", name=name, use=False)
            order: list[str] = []

            async def run(client: Client[Any], notebook: str, code: str, mark: str) -> None:
                result = await call(client, "execute", code=code, notebook=notebook)
                assert not result.is_error, text(result)
                order.append(mark)

            async def running() -> bool:
                return bool(
                    (await call(two, "list_notebooks")).structured_content["notebooks"][0]["kernel"] == "running"
                )

            async with anyio.create_task_group() as group:
                group.start_soon(run, one, "a", f"{waits_for(tmp_path / 'go')}log = ['first']", "slow")
                await until(running, "the first run begins")
                group.start_soon(run, two, "a", "log.append('second'); log", "queued")
                await run(two, "b", "1", "other")
                (tmp_path / "go").touch()
            assert order[0] == "other" and order[1:] == ["slow", "queued"]
            log = await call(one, "execute", code="log", notebook="a")
            assert log.structured_content["return_value"] == ["first", "second"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"code": ""}, "empty"),
        ({"code": "  \n\t"}, "empty"),
        ({"code": "x = 1\x00"}, "NUL"),
        ({"code": "#" * 1_000_001}, "max_code_bytes"),
        ({"code": "1", "timeout": 0}, "timeout must be above 0"),
        ({"code": "1", "timeout": -5}, "timeout must be above 0"),
        ({"code": "1", "timeout": 1e12}, "max_timeout"),
        ({"code": "1", "notebook": "nowhere"}, "No notebook is called 'nowhere'. There are: "),
        ({"code": "1", "notebook": "a?b"}, "cannot name a notebook"),
        ({"code": "1", "notebook": "a/b"}, "No notebook is called 'a/b'. There are: "),  # another user's, if any
        ({"code": "1", "notebook": "n" * 300}, "1 to 100 characters"),
        ({"code": "1", "timeout": "soon"}, "timeout"),
        ({"cod": "1"}, "code is missing; there is no argument cod"),
        ({"code": 5}, "code"),
    ],
)
async def test_bad_input_is_refused_and_nothing_changes(
    client: Client[Any], book: Book, arguments: dict[str, Any], says: str
) -> None:
    await call(client, "execute", code="1")
    result = await call(client, "execute", **arguments)
    assert result.is_error and says in text(result)
    named = re.search(rf" {book.name}(\.| and \d+ older ones\.)", text(result))  # the newest is named last
    assert "There are: " not in says or named
    assert (await call(client, "list_cells")).structured_content["total"] == 1
