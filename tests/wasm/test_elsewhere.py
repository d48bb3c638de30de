"""Other systems than Linux, as far as one can pretend: without the calls, flags and modules that they do not have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from tests.conftest import server_environment, text
from tests.wasm.programs import assets_dir

HERE = Path(__file__).with_name("elsewhere")
RUNTIMES = ("wasm-python", "wasm-javascript")


def pretending(system: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(HERE), "PYTHONASIF": system}


def test_what_a_system_does_not_have_is_not_found_by_quire(tmp_path: Path) -> None:
    program = tmp_path / "quire" / "tried.py"
    program.parent.mkdir()
    program.write_text("import os, sys\nprint(sys.platform, hasattr(os, 'fork'), hasattr(os, 'O_PATH'))\nimport fcntl")
    for system, there in (("darwin", "darwin True False"), ("win32", "win32 False False")):
        tried = subprocess.run([sys.executable, program], env=pretending(system), capture_output=True, text=True)
        assert (tried.stdout.strip(), tried.returncode) == (there, int(system == "win32")), tried


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_the_runtimes_need_nothing_that_only_linux_or_posix_has(tmp_path: Path, system: str, runtime: str) -> None:
    command = [sys.executable, str(HERE / "cells.py"), runtime, str(assets_dir()), str(tmp_path)]
    tried = subprocess.run(command, env=pretending(system), capture_output=True, text=True, timeout=180)
    assert tried.stdout == "all of it\n", tried.stderr


def test_windows_is_told_what_to_do_in_one_line() -> None:
    command = [sys.executable, "-m", "quire", "list"]
    tried = subprocess.run(command, env=pretending("win32"), capture_output=True, text=True)
    assert (tried.returncode, tried.stderr.count("\n")) == (1, 1)
    assert "run Quire in WSL" in tried.stderr


async def test_without_what_only_linux_has_the_whole_server_works(data_dir: Path) -> None:
    """As on macOS."""
    settings = {"toolsets": "default,sandbox,files", "assets_dir": str(assets_dir()), "wasm_python": "plain"}
    environment = server_environment(data_dir, **settings) | pretending("darwin")
    transport = StdioTransport(sys.executable, ["-m", "quire"], env=environment, keep_alive=False)
    async with Client(transport) as client:
        assert text(await client.call_tool("execute", {"code": "x = 41; x + 1"})).startswith("42\n")
        await client.call_tool("execute", {"code": "open('a.txt', 'w').write('here')"})
        assert text(await client.call_tool("read_file", {"path": "a.txt"})).startswith("here")
        await client.call_tool("write_file", {"path": "below/b.txt", "text": "there"})
        assert "below" in text(await client.call_tool("list_files", {}))
        await client.call_tool("rollback", {"to": 0})
        await client.call_tool("save_state", {"name": "one"})
        backend = f"{sys.executable} {Path(__file__).parents[1] / 'backends' / 'good.py'}"
        await client.call_tool("install_capability", {"name": "good", "server_command": backend})
        assert "3" in text(await client.call_tool("execute", {"code": "good.add(1, 2)"}))
        await client.call_tool("uninstall_capability", {"name": "good"})
        said = text(await client.call_tool("list_runtimes", {}))
        assert "python: cannot start here: it needs Linux" in said
        assert "it is a part of Linux" in said  # the walls around the process
    async with Client(transport) as client:
        assert "41\n" in text(await client.call_tool("execute", {"code": "x"}))
