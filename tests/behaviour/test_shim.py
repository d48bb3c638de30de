"""Notebooks in an environment without IPython: its syntax, magics and display classes work there, too."""

from __future__ import annotations

from typing import Any

import pytest
from fastmcp import Client

from tests.support.servers import SharedServer, call, text


@pytest.fixture(scope="module")
async def bare(shared_server: SharedServer) -> Client[Any]:
    """A client whose current notebook has an environment of its own, without IPython."""
    client = await shared_server.client()
    made = await call(client, "create_notebook", name="bare", python="venv")
    assert not made.is_error, text(made)
    return client


@pytest.fixture
async def client(bare: Client[Any]) -> Client[Any]:
    """The same client. Its namespace is empty."""
    await call(bare, "reset")
    return bare


async def run(client: Client[Any], code: str) -> dict[str, Any]:
    done = await call(client, "execute", code=code, timeout=120)
    assert not done.is_error, text(done)
    found: dict[str, Any] = done.structured_content
    return found


async def test_commands_magics_and_help(client: Client[Any]) -> None:
    bare = await run(client, "import importlib.util\nx = 5\nimportlib.util.find_spec('ipykernel') is None")
    assert bare["return_value"] is True
    assert (await run(client, "!echo {x} $x; echo err >&2"))["stdout"] == "5 5\nerr\n"
    assert (await run(client, "lines = !printf 'a\\nb\\n'\nlist(lines)"))["return_value"] == ["a", "b"]
    assert "Wall time" in (await run(client, "%time sum(range(10))"))["stdout"]
    assert (await run(client, "%%time\nx * 2"))["return_value"] == 10
    assert "loops each" in (await run(client, "%timeit -n 10 -r 2 x"))["stdout"]
    bash = await run(client, "%%bash\necho from bash; echo aside >&2")
    assert (bash["stdout"], bash["stderr"]) == ("from bash\n", "aside\n")
    await run(client, "%%writefile m.py\ny = 7\nprint(__name__)")
    assert (await run(client, "%run m.py\ny"))["return_value"] == 7
    assert "x" in (await run(client, "%who"))["stdout"]
    assert "Docstring" in (await run(client, "len?"))["stdout"]
    assert (await run(client, "%%capture kept\nprint('inside')\n"))["stdout"] == ""
    assert (await run(client, "kept.stdout"))["return_value"] == "inside\n"


async def test_what_is_wrong_is_an_error_that_names_the_next_step(client: Client[Any]) -> None:
    unknown = await call(client, "execute", code="%tiem 5", timeout=120)
    assert unknown.structured_content["error_type"] == "UsageError"
    assert "%time" in text(unknown) and "%pip install ipython" in text(unknown)
    failed = await call(client, "execute", code="%%bash\nexit 3", timeout=120)
    assert failed.structured_content["error_type"] == "CalledProcessError"
    inside = await call(client, "execute", code="%time 1/0", timeout=120)
    assert inside.structured_content["error_type"] == "ZeroDivisionError"
    missing = await call(client, "execute", code="import IPython.parallel", timeout=120)
    assert missing.structured_content["error_type"] == "ModuleNotFoundError" and "%pip install" in text(missing)


async def test_display_classes_and_the_shell_that_libraries_ask_for(client: Client[Any]) -> None:
    shown = await run(client, "from IPython.display import HTML, Markdown, display\ndisplay(HTML('<b>bold</b>'))")
    assert [(each["type"], each["text"]) for each in shown["outputs"]] == [("html", "bold")]
    assert (await run(client, "str(type(get_ipython()))"))["return_value"].count("zmqshell") == 1
    await run(client, "handle = display('first', display_id=True)\nhandle.update('second')")
    wide = await call(client, "execute", code="{'words': ['a rather long word number %d' % n for n in range(5)]}")
    assert "{'words': ['a rather long word number 0',\n  'a rather long word number 1',\n" in text(wide)
    await run(
        client, "from IPython.core.magic import register_line_magic\n@register_line_magic\ndef up(l): return l.upper()"
    )
    assert (await run(client, "%up abc"))["return_value"] == "ABC"
    await run(client, "seen = []\nget_ipython().events.register('post_run_cell', lambda result: seen.append(1))")
    await run(client, "1")
    assert (await run(client, "len(seen) >= 1"))["return_value"] is True


async def test_an_interrupted_command_leaves_the_kernel_as_it_was(client: Client[Any]) -> None:
    await run(client, "x = 41")
    stopped = await call(client, "execute", code="!sleep 60", timeout=2)
    assert stopped.is_error
    assert (await run(client, "x + 1"))["return_value"] == 42
