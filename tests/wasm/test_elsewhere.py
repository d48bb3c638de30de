"""Other systems than Linux, as far as one can pretend: without the calls, flags and modules that they do not have."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from tests.support.backends import BACKENDS
from tests.support.servers import server_environment, text
from tests.support.wasm.assets import assets_dir

HERE = Path(__file__).with_name("elsewhere")
RUNTIMES = ("wasm-python", "wasm-javascript")


def pretending(system: str) -> dict[str, str]:
    told = {"PYTHONPATH": str(HERE), "PYTHONASIF": system, "PYTHONWARNDEFAULTENCODING": "1"}
    return {"PATH": os.environ["PATH"], **told}


def test_what_a_system_does_not_have_is_not_found_by_quire(tmp_path: Path) -> None:
    write_module(tmp_path, "quire/tried.py")
    for system, there in (("darwin", "darwin True False"), ("win32", "win32 False False")):
        tried = run_module("quire.tried", tmp_path, system)
        assert (tried.stdout.strip(), tried.returncode) == (there, int(system == "win32")), tried


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_library_in_folder_called_quire_finds_all_of_linux(tmp_path: Path, system: str) -> None:
    write_module(tmp_path / "quire", "library/tried.py")
    tried = run_module("library.tried", tmp_path / "quire", system)
    assert (tried.stdout.strip(), tried.returncode) == ("linux True True", 0), tried


def write_module(folder: Path, path: str) -> None:
    """A module that says what it finds, in a package of its own."""
    program = folder / path
    program.parent.mkdir(parents=True)
    program.with_name("__init__.py").touch()
    program.write_text("import os, sys\nprint(sys.platform, hasattr(os, 'fork'), hasattr(os, 'O_PATH'))\nimport fcntl")


def run_module(name: str, folder: Path, system: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", name]
    return subprocess.run(command, env=pretending(system), cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_the_runtimes_need_nothing_that_only_linux_or_posix_has(tmp_path: Path, system: str, runtime: str) -> None:
    command = [sys.executable, str(HERE / "cells.py"), runtime, str(assets_dir()), str(tmp_path)]
    tried = subprocess.run(command, env=pretending(system), capture_output=True, text=True, timeout=180)
    assert tried.stdout == "all of it\n", tried.stderr


@pytest.mark.parametrize("system", ["darwin", "win32"])
async def test_without_what_only_linux_or_posix_has_the_whole_server_works(data_dir: Path, system: str) -> None:
    settings = {"toolsets": "default,sandbox,files", "assets_dir": str(assets_dir()), "wasm_python": "plain"}
    environment = server_environment(data_dir, **settings) | pretending(system)
    transport = StdioTransport(sys.executable, ["-m", "quire"], env=environment, keep_alive=False)
    async with Client(transport) as client:
        assert text(await client.call_tool("execute", {"code": "x = 41; x + 1"})).startswith("42\n")
        await client.call_tool("execute", {"code": "open('a.txt', 'w').write('here')"})
        assert text(await client.call_tool("read_file", {"path": "a.txt"})).startswith("here")
        await client.call_tool("write_file", {"path": "below/b.txt", "text": "there"})
        assert "below" in text(await client.call_tool("list_files", {}))
        await client.call_tool("rollback", {"to": 0})
        await client.call_tool("save_state", {"name": "one"})
        backend = shlex.join([sys.executable, str(BACKENDS / "good.py")])
        await client.call_tool("install_capability", {"name": "good", "server_command": backend})
        assert "3" in text(await client.call_tool("execute", {"code": "good.add(1, 2)"}))
        await client.call_tool("uninstall_capability", {"name": "good"})
        script = {"code": "files.write('c.txt', 'js'); 6 * 7", "language": "javascript"}
        assert text(await client.call_tool("execute_code", script)).startswith("42\n")
        said = text(await client.call_tool("list_runtimes", {}))
        assert "python: cannot start here: it needs Linux" in said
        assert "it is a part of Linux" in said  # the walls around the process
    async with Client(transport) as client:
        assert "41\n" in text(await client.call_tool("execute", {"code": "x"}))


def quire(data_dir: Path, *words: str, code: int = 0) -> str:
    """What the command says, as if on Windows."""
    environment = server_environment(data_dir, assets_dir=str(assets_dir())) | pretending("win32")
    command = [sys.executable, "-m", "quire", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_without_posix_the_commands_work(data_dir: Path, tmp_path: Path) -> None:
    assert quire(data_dir, "exec", "x = 41; x + 1", "--notebook", "one") == "42\n"
    assert "one" in quire(data_dir, "list")
    assert "x: int" in quire(data_dir, "state", "one")
    assert "Freed" in quire(data_dir, "gc")
    assert "x + 1" in quire(data_dir, "export", "one")
    script = tmp_path / "a.py"
    script.write_text("print('of a script')")
    quire(data_dir, "run", str(script), "-o", str(tmp_path / "a.ipynb"))
    assert "of a script" in (tmp_path / "a.ipynb").read_text()
    quire(data_dir, "token", "add", "ann")
    assert "ann" in quire(data_dir, "token", "list")
    assert "variables were restored after a crash" in quire(data_dir, "doctor", code=1)  # no walls


async def test_two_servers_share_a_data_directory_without_posix(data_dir: Path) -> None:
    settings = {"assets_dir": str(assets_dir()), "audit_bytes": 100_000}
    environment = server_environment(data_dir, **settings) | pretending("win32")
    command = [sys.executable, ["-m", "quire"]]
    one, two = (Client(StdioTransport(*command, env=environment, keep_alive=False)) for _ in range(2))
    async with one, two:
        await one.call_tool("execute", {"code": "x = 1"})
        [name] = (await one.call_tool("list_notebooks", {})).structured_content["notebooks"]
        refused = await two.call_tool("execute", {"code": "x", "notebook": name["name"]}, raise_on_error=False)
        assert "is being run by another Quire server" in text(refused)
        for _ in range(600):
            await one.call_tool("list_notebooks", {})
    assert (data_dir / "audit.jsonl").exists() and list(data_dir.glob("audit-*.jsonl"))
