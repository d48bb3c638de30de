"""Notebooks whose interpreter has no IPython: its syntax, magics and display classes work there, from a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from tests.support import plain_interpreter
from tests.support.servers import SharedServer, SharedServers, call, text


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


async def value(client: Client[Any], code: str) -> Any:
    return (await run(client, code))["return_value"]


async def test_commands_magics_and_help(client: Client[Any]) -> None:
    assert (await run(client, "!python -c 'import IPython'"))["stdout"].endswith("No module named 'IPython'\n")
    await run(client, "x = 5")
    assert (await run(client, "!echo {x} $x; echo err >&2"))["stdout"] == "5 5\nerr\n"
    assert await value(client, "lines = !printf 'a\\nb\\n'\nlist(lines)") == ["a", "b"]
    assert "Wall time" in (await run(client, "%time sum(range(10))"))["stdout"]
    assert await value(client, "%%time\nx * 2") == 10
    assert "loops each" in (await run(client, "%timeit -n 10 -r 2 x"))["stdout"]
    bash = await run(client, "%%bash\necho from bash; echo aside >&2")
    assert (bash["stdout"], bash["stderr"]) == ("from bash\n", "aside\n")
    await run(client, "%%writefile m.py\ny = 7\nprint(__name__)")
    assert await value(client, "%run m.py\ny") == 7
    assert "x" in (await run(client, "%who"))["stdout"]
    assert "Docstring" in text(await call(client, "execute", code="len?", timeout=120))
    assert (await run(client, "%%capture kept\nprint('inside')\n"))["stdout"] == ""
    assert await value(client, "kept.stdout") == "inside\n"


async def test_autoreload_takes_up_an_edited_module(client: Client[Any]) -> None:
    await run(client, "%%writefile edited.py\ndef answer(): return 1")
    await run(client, "%load_ext autoreload\n%autoreload 2\nimport edited")
    assert await value(client, "edited.answer()") == 1
    await run(client, "open('edited.py', 'w').write('def answer(): return 42\\n')")
    assert await value(client, "edited.answer()") == 42


async def test_debug_shows_where_the_last_error_was(client: Client[Any]) -> None:
    await call(client, "execute", code="def divide(x): return 1 / x\ndivide(0)", timeout=120)
    shown = await call(client, "execute", code="%debug", timeout=120)
    assert shown.structured_content["error_type"] == "InputNotAvailable"  # it asks at a prompt, and gets no answer
    assert "divide" in shown.structured_content["stdout"]


async def test_what_is_wrong_is_an_error_that_names_the_next_step(client: Client[Any]) -> None:
    unknown = await call(client, "execute", code="%tiem 5", timeout=120)
    assert unknown.structured_content["error_type"] == "UsageError"
    assert "%time" in text(unknown) and "%lsmagic" in text(unknown)
    failed = await call(client, "execute", code="%%bash\nexit 3", timeout=120)
    assert failed.structured_content["error_type"] == "CalledProcessError"
    inside = await call(client, "execute", code="%time 1/0", timeout=120)
    assert inside.structured_content["error_type"] == "ZeroDivisionError"


async def test_display_classes_and_the_shell_that_libraries_ask_for(client: Client[Any]) -> None:
    shown = await run(client, "from IPython.display import HTML, Markdown, display\ndisplay(HTML('<b>bold</b>'))")
    assert [(each["type"], each["text"]) for each in shown["outputs"]] == [("html", "bold")]
    assert (await value(client, "str(type(get_ipython()))")).count("zmqshell") == 1
    await run(client, "handle = display('first', display_id=True)\nhandle.update('second')")
    wide = await call(client, "execute", code="{'words': ['a rather long word number %d' % n for n in range(5)]}")
    assert "{'words': ['a rather long word number 0',\n  'a rather long word number 1',\n" in text(wide)
    await run(
        client, "from IPython.core.magic import register_line_magic\n@register_line_magic\ndef up(l): return l.upper()"
    )
    assert await value(client, "%up abc") == "ABC"
    await run(client, "seen = []\nget_ipython().events.register('post_run_cell', lambda result: seen.append(1))")
    await run(client, "1")
    assert await value(client, "len(seen) >= 1") is True


async def test_a_library_can_change_the_text_of_cells(client: Client[Any]) -> None:
    await run(
        client, "get_ipython().input_transformers_post.append(lambda lines: [l.replace('ONE', '1') for l in lines])"
    )
    assert await value(client, "ONE + 1") == 2


async def test_an_interrupted_command_leaves_the_kernel_as_it_was(client: Client[Any]) -> None:
    await run(client, "x = 41")
    stopped = await call(client, "execute", code="!sleep 60", timeout=2)
    assert stopped.is_error
    assert await value(client, "x + 1") == 42


async def test_copied_packages_are_not_listed_as_installed(client: Client[Any]) -> None:
    await run(client, "import IPython")
    names = "import importlib.metadata\nsorted({each.name for each in importlib.metadata.distributions()})"
    assert set(await value(client, names)) <= {"matplotlib-inline"}  # which matplotlib looks for
    assert "/libraries/" not in str(await value(client, "import sys\nsys.path"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that the server starts, with matplotlib and without IPython."""
    folder = tmp_path_factory.mktemp("interpreter")
    plain_interpreter.make(folder, *plain_interpreter.DRAWING)
    (plain_interpreter.site_packages(folder) / "psutil.py").write_text("raise ImportError('it does not fit')\n")
    return folder


@pytest.mark.parametrize("sandbox", ["auto", "off"])
@pytest.mark.parametrize("preload", ["", "IPython,matplotlib.pyplot"])
async def test_interpreter_of_the_server_draws_figures_and_runs_magics(
    shared_servers: SharedServers, folder: Path, sandbox: str, preload: str
) -> None:
    client = await shared_servers.client(python=str(folder / "bin/python"), sandbox=sandbox, preload=preload)
    await call(client, "create_notebook", name="drawing")
    assert await value(client, "import sys\nsys.prefix") == str(folder)
    drawn = await run(client, "import matplotlib.pyplot as plt\nplt.plot([1, 2]);")
    assert [each["type"] for each in drawn["outputs"]] == ["image"]
    await run(client, "%config InlineBackend.figure_formats = ['svg']")
    drawn = await run(client, "%matplotlib inline\nplt.plot([1, 2]);")
    assert [each["type"] for each in drawn["outputs"]] == ["image"]
    apart = await run(client, "!{sys.executable} -c 'import matplotlib.pyplot as plt; print(plt.get_backend())'")
    assert apart["stdout"] == "agg\n"
    assert "Wall time" in (await run(client, "%time 1"))["stdout"]


async def test_packages_of_the_user_come_before_the_copies(shared_servers: SharedServers, folder: Path) -> None:
    client = await shared_servers.client(python=str(folder / "bin/python"), sandbox="auto", preload="")
    await call(client, "create_notebook", name="own packages")
    assert "Wall time" in (await run(client, "%time 1"))["stdout"]
    own = await call(client, "execute", code="import psutil")
    assert own.structured_content["error_message"] == "it does not fit"


async def test_plain_cells_run_where_ipython_cannot_be_loaded(shared_servers: SharedServers, tmp_path: Path) -> None:
    python = plain_interpreter.make(tmp_path / "old")
    (plain_interpreter.site_packages(tmp_path / "old") / "traitlets.py").write_text("version = 'old'\n")
    client = await shared_servers.client(python=str(python), preload="IPython")
    await cannot_load(client, python)


async def test_plain_cells_run_where_ipython_cannot_be_copied(
    shared_servers: SharedServers, folder: Path, tmp_path: Path
) -> None:
    python = folder / "bin/python"
    (tmp_path / "file").touch()
    client = await shared_servers.client(python=str(python), assets_dir=str(tmp_path / "file"), preload="")
    await cannot_load(client, python)
    drawn = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('plot.png')\nplt.get_backend()"
    assert await value(client, drawn) == "agg"


async def cannot_load(client: Client[Any], python: Path) -> None:
    await call(client, "create_notebook", name="plain")
    assert await value(client, "x = 41\nx + 1") == 42
    assert "<object object at" in text(await call(client, "execute", code="[object()] * 30"))
    misspelt = await call(client, "execute", code="misspelt")
    assert misspelt.structured_content["error_type"] == "NameError"
    refused = await call(client, "execute", code="%time 1")
    assert "IPython could not be loaded" in text(refused)
    assert f"{python} -m pip install ipython" in text(refused)
    assert await value(client, "x") == 41
