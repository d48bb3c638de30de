"""The command line, as a person types it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import nbformat
import pytest
from fastmcp import Client

from quire import __version__
from tests.support import preloaded
from tests.support.external_programs import inspector
from tests.support.processes import free_port
from tests.support.servers import call, http_server, server_environment
from tests.support.waiting import DEADLINE


def quire(data_dir: Path, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**server_environment(data_dir), **environment}
    command = preloaded.quire(*arguments)
    return subprocess.run(command, env=env, input=stdin, capture_output=True, text=True, timeout=DEADLINE)


def test_exec_runs_code_and_its_exit_code_says_how_it_went(data_dir: Path) -> None:
    first = quire(data_dir, "exec", "import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
    assert (first.returncode, first.stdout) == (0, "out\n42\n") and "err" in first.stderr
    failed = quire(data_dir, "exec", "-", stdin="1/0")
    assert failed.returncode == 1 and "ZeroDivisionError" in failed.stderr
    listed = quire(data_dir, "list")
    assert "main" in listed.stdout and " 2 " in listed.stdout


def test_export_writes_a_valid_notebook(data_dir: Path, tmp_path: Path) -> None:
    quire(data_dir, "exec", "print('kept')", "--notebook", "work")
    shown = quire(data_dir, "export", "work")
    nbformat.validate(nbformat.reads(shown.stdout, as_version=4))
    written = quire(data_dir, "export", "work", "-o", str(tmp_path / "work.ipynb"))
    assert written.returncode == 0 and (tmp_path / "work.ipynb").read_text() == shown.stdout
    unknown = quire(data_dir, "export", "nothing")
    assert unknown.returncode == 2 and "There are: work" in unknown.stderr


def test_export_writes_the_format_that_the_ending_names(data_dir: Path, tmp_path: Path) -> None:
    quire(data_dir, "exec", "print('kept')\n6 * 7", "--notebook", "work")

    def exported(name: str) -> str:
        done = quire(data_dir, "export", "work", "-o", str(tmp_path / name))
        assert (done.returncode, done.stderr) == (0, f"Wrote 1 cell to {tmp_path / name}.\n")
        return (tmp_path / name).read_text()

    assert exported("work.py") == "# %%\nprint('kept')\n6 * 7\n"
    assert exported("work.md") == "```python\nprint('kept')\n6 * 7\n```\n\n```text\nkept\n```\n\n```text\n42\n```\n"
    page = exported("work.HTML")
    assert page.startswith("<!DOCTYPE html>") and "<title>work</title>" in page and "kept" in page
    for name in ("work.ipynb", "work"):
        nbformat.validate(nbformat.reads(exported(name), as_version=4))
    refused = quire(data_dir, "export", "work", "-o", str(tmp_path / "work.pdf"))
    assert refused.returncode == 2 and not (tmp_path / "work.pdf").exists()
    assert "the ending '.pdf'; use .ipynb, .py, .md, .html. Nothing was written." in refused.stderr
    program = tmp_path / "script.py"
    program.write_text("print(2)\n")
    assert "Nothing was written" in quire(data_dir, "run", str(program), "-o", str(tmp_path / "out.txt")).stderr
    assert quire(data_dir, "run", str(program), "-o", str(tmp_path / "out.md")).returncode == 0
    assert (tmp_path / "out.md").read_text() == "```python\nprint(2)\n```\n\n```text\n2\n```\n"


def test_errors_of_commands_name_commands(data_dir: Path) -> None:
    quire(data_dir, "exec", "1", "--notebook", "sales")
    wrong = {
        "export slaes": "The nearest is 'sales'. `quire list` shows them.",
        "restore sales": "None was saved. Nothing was changed. `quire save` saves one.",
        "capability remove nothing": "installed: none. `quire capability add` adds one.",
    }
    for arguments, says in wrong.items():
        refused = quire(data_dir, *arguments.split())
        assert refused.returncode == 2 and says in refused.stderr and "_" not in refused.stderr, refused.stderr


def test_a_saved_namespace_without_variables_is_said_so(data_dir: Path) -> None:
    assert quire(data_dir, "exec", "1", "--notebook", "empty").returncode == 0
    assert quire(data_dir, "save", "empty").returncode == 0
    shown = quire(data_dir, "state", "empty").stdout
    assert "The next run begins with no variables (" in shown and shown.endswith(").\n"), shown


async def test_a_command_that_finds_the_notebook_in_use_names_another_way(stdio: Client[Any], data_dir: Path) -> None:
    assert not (await call(stdio, "execute", code="1")).is_error
    refused = await asyncio.to_thread(quire, data_dir, "exec", "1")
    assert refused.returncode == 2 and "another Quire server" in refused.stderr
    assert "(`quire exec --notebook NAME`)" in refused.stderr and "create_notebook" not in refused.stderr


def test_a_list_that_is_piped_has_whole_paths(tmp_path: Path) -> None:
    data_dir = tmp_path / ("long" * 40)
    quire(data_dir, "exec", "1")
    first, row = quire(data_dir, "list").stdout.splitlines()
    assert (first, row) == (first.rstrip(), row.rstrip())
    assert first.split() == ["name", "cells", "runs", "runtime", "workspace"]
    assert (data_dir / "workspaces") == Path(row.split()[-1]).parent


def test_without_nbconvert_html_is_refused_in_one_line(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "work.html"
    refused = without("nbconvert", ["export", "main", "-o", str(target)], server_environment(data_dir))
    assert refused.returncode == 2 and not target.exists()
    assert refused.stderr.startswith(
        "quire: HTML is written by nbconvert, which is not installed: pip install nbconvert."
    )


def without(module: str, arguments: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command where this module is not installed."""
    hide = f"find = u.find_spec; u.find_spec = lambda name, *given: None if name == {module!r} else find(name, *given)"
    program = f"import importlib.util as u; {hide}; from quire.cli import main; main({arguments!r})"
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=DEADLINE)


def test_the_demo_takes_its_tour(data_dir: Path) -> None:
    tour = quire(data_dir, "demo")
    assert tour.returncode == 0, tour.stdout + tour.stderr
    for word in (
        "140",
        "IndexError",
        "TIMEOUT",
        "SIGSEGV",
        "204",
        "(stale)",
        "second way",
        "tour.ipynb",
        "cells came home",
    ):
        assert word in tour.stdout


def test_doctor_tries_every_part(data_dir: Path) -> None:
    fine = quire(data_dir, "doctor")
    assert fine.returncode == 0 and "kernels" in fine.stdout and "sandbox" in fine.stdout
    assert "wasm-python" in fine.stdout and "wasm-javascript" in fine.stdout
    broken = quire(data_dir, "doctor", QUIRE_KERNEL_PYTHON="/nonexistent/python")
    assert broken.returncode == 1 and "QUIRE" not in broken.stderr and "/nonexistent/python" in broken.stdout


def test_install_writes_the_configuration_of_a_client(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    existing = tmp_path / ".cursor" / "mcp.json"
    existing.write_text('{"mcpServers": {"other": {"command": "x"}}}')
    done = quire(data_dir, "install", "cursor", HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    servers = json.loads(existing.read_text())["mcpServers"]
    assert servers["other"] == {"command": "x"} and "quire" in servers
    printed = quire(data_dir, "install", "codex", "--print", HOME=str(tmp_path))
    assert "[mcp_servers.quire]" in printed.stdout and not (tmp_path / ".codex").exists()
    unknown = quire(data_dir, "install", "emacs")
    assert unknown.returncode == 2 and "claude-code" in unknown.stderr


def test_version_and_help(data_dir: Path) -> None:
    assert quire(data_dir, "--version").stdout == f"quire {__version__}\n"
    assert "serve" in quire(data_dir, "--help").stdout


@pytest.mark.parametrize(
    ("environment", "arguments", "says"),
    [
        ({"QUIRE_COLOUR": "red"}, ["list"], "There is no setting 'QUIRE_COLOUR'"),
        (
            {"QUIRE_CELL_TIMEOT": "3"},
            ["list"],
            "The nearest is QUIRE_KERNEL_CELL_TIMEOUT_SECONDS. `quire config show` lists all.",
        ),
        ({"QUIRE_SERVER_PORT": "many"}, ["list"], "Setting 'server.port' cannot be 'many'"),
        ({"QUIRE_KERNEL_CELL_TIMEOUT_SECONDS": "-1"}, ["list"], "Setting 'kernel.cell_timeout_seconds'"),
        (
            {"QUIRE_LIMITS_MAX_CODE_BYTES": "x", "QUIRE_SERVER_PORT": "y"},
            ["list"],
            "Setting 'server.port' cannot be 'y'",
        ),
        (
            {"QUIRE_KERNEL_WORKSPACE": "/nonexistent/folder"},
            ["serve"],
            "'/nonexistent/folder': there is no such folder.",
        ),
        ({}, ["serve", "--kernel-python", "/usr/bin/nopy"], "'/usr/bin/nopy': there is no such program."),
        ({}, ["serve", "--kernel-python", "/bin/ls"], "'/bin/ls': it is not a Python interpreter."),
        ({}, ["serve", "--kernel-python", "/etc/passwd"], "'/etc/passwd': it is not an executable file."),
        ({}, ["exec", "1", "--data-di", "x"], "'quire exec' has no option --data-di. The nearest is '--data-dir'."),
        (
            {},
            ["serve", "--limits-max-request-byte", "5"],
            "no option --limits-max-request-byte. The nearest is '--limits-max-request-bytes'.",
        ),
        ({}, ["jupyter-mcp-server", "--jupyter-ur", "x"], "no option --jupyter-ur. The nearest is '--jupyter-url'."),
        (
            {},
            ["serve", "--capabilities-private-hosts", "x y"],
            "Setting 'capabilities.private_hosts' cannot be 'x y': 'x y' is not a host",
        ),
        ({}, ["serve", "--server-allowed-hosts", "https://a.org"], "'https://a.org' is not a host: write example.org"),
        ({"QUIRE_SERVER_ALLOWED_HOSTS": "a.org:99999"}, ["list"], "'a.org:99999' is not a host"),
        ({}, ["serve", "--sandbox-environment", "HOME,A B"], "'A B' is no name of a variable: write HF_TOKEN."),
        ({"QUIRE_SANDBOX_MOUNTS": "/nonexistent/data"}, ["serve"], "'/nonexistent/data': there is no such folder."),
        (
            {},
            ["serve", "--cell-timeot", "3"],
            "'quire serve' has no option --cell-timeot. The nearest is '--kernel-cell-timeout-seconds'.",
        ),
        ({}, ["lsit"], "'lsit' is no command. The nearest is 'list'."),
        ({}, ["capability", "describe"], "'quire capability' has no 'describe'. There are: list, add, import, remove."),
        ({}, ["audit", "--kind", "x"], "'x' is no value of --kind. There are: call, capability."),
        ({}, ["list", "main"], "'quire list' does not take 'main'."),
        ({}, ["exec"], "the following arguments are required: code. `quire exec --help`"),
        ({"QUIRE_CONFIG": "/nonexistent.toml"}, ["list"], "/nonexistent.toml cannot be read"),
        ({}, ["serve", "--server-toolsets", "notebook,poetry"], "there is no tool set 'poetry'"),
        ({}, ["serve", "--server-transport", "http", "--server-host", "0.0.0.0"], "Other machines can reach the host"),
        ({"QUIRE_KERNEL_PYTHON": "/nonexistent/python"}, ["exec", "1"], "/nonexistent/python"),
        ({}, ["exec", ""], "empty"),
        ({}, ["exec", "1", "--notebook", "a/b"], "cannot name a notebook"),
    ],
)
def test_a_bad_setting_is_named_in_one_line(
    data_dir: Path, environment: dict[str, str], arguments: list[str], says: str
) -> None:
    result = quire(data_dir, *arguments, **environment)
    assert result.returncode == 2 and says in result.stderr
    assert result.stderr.startswith("quire: ") and result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr and "Undefined" not in result.stderr
    assert len(result.stderr) < 400 and not Path("/nonexistent").exists()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("#!/bin/sh\necho python 3 9\n", "it is Python 3.9, and kernels need 3.11 or newer."),
        ("#!/bin/sh\necho python a b\n", "it is not a Python interpreter."),
        ("no program", "it is not a Python interpreter."),
    ],
)
def test_a_program_that_is_no_interpreter_is_refused(data_dir: Path, tmp_path: Path, script: str, says: str) -> None:
    program = tmp_path / "python"
    program.write_text(script)
    program.chmod(0o755)
    refused = quire(data_dir, "serve", "--kernel-python", str(program))
    assert (
        refused.returncode == 2
        and refused.stderr == f"quire: Setting 'kernel.python' cannot be {str(program)!r}: {says}\n"
    )


def test_flags_win_over_the_environment_and_that_over_the_file(data_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "quire.toml"
    file.write_text(f'[store]\ndata_dir = "{tmp_path / "other"}"\n[kernel]\ncell_timeout_seconds = 0.5\n')
    slow = quire(data_dir, "exec", "import time; time.sleep(5)", "--config", str(file))
    assert slow.returncode == 1 and "0.5 s, its timeout" in slow.stderr
    assert (data_dir / "quire.db").exists() and not (tmp_path / "other").exists()
    patient = quire(data_dir, "exec", "1", "--timeout", "20", "--config", str(file))
    assert patient.returncode == 0
    file.write_text("cell_timeot = 3\n")
    assert "There is no setting 'cell_timeot'" in quire(data_dir, "list", "--config", str(file)).stderr


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server over HTTP."""
    with http_server(tmp_path_factory.mktemp("http") / "data") as (found, _):
        yield found


def test_a_port_that_is_taken_is_named(data_dir: Path, url: str) -> None:
    port = url.split(":")[2].split("/")[0]
    second = quire(data_dir, "serve", "--server-transport", "http", "--server-port", port)
    assert second.returncode == 2 and f"Port {port}" in second.stderr


def test_http_answers_its_own_machine_only_by_its_own_name(url: str) -> None:
    base = url.removesuffix("/mcp")
    assert httpx2.get(f"{base}/healthz").json() == {"status": "ok"}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Accept": "application/json, text/event-stream"}
    assert httpx2.post(url, json=hello, headers={**headers, "Host": "evil.example"}).status_code in (403, 421)
    for origin in ("http://evil.example", "http://127.0.0.1:1", "http://localhost:1"):
        assert httpx2.post(url, json=hello, headers={**headers, "Origin": origin}).status_code == 403


def test_the_greeting_has_the_address_the_sandbox_and_what_to_paste(data_dir: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "quire", "serve", "--server-transport", "http", "--server-port", str(port)]
    with subprocess.Popen(command, env=server_environment(data_dir), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = ""
        while "Ctrl-C" not in seen:
            line = process.stderr.readline()
            assert line, seen
            seen += line
        process.terminate()
        assert process.wait(DEADLINE) in (0, 143)
    assert f"http://127.0.0.1:{port}/mcp" in seen and str(data_dir) in seen and "sandbox" in seen
    pasted = json.loads(seen[seen.index("{") : seen.rindex("}") + 1])
    assert pasted["mcpServers"]["quire"]["url"].endswith("/mcp")


def inspect(target: list[str], data_dir: Path, *arguments: str) -> dict[str, object]:
    done = subprocess.run(
        [*inspector(), "--cli", *target, "--connect-timeout", str(int(DEADLINE * 1000)), *arguments],
        env={**os.environ, **server_environment(data_dir)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_official_inspector_lists_and_calls_over_stdio(data_dir: Path) -> None:
    target = [sys.executable, "-m", "quire"]
    tools = inspect(target, data_dir, "--method", "tools/list")["tools"]
    assert isinstance(tools, list) and {"execute", "add_cell"} <= {tool["name"] for tool in tools}
    result = inspect(target, data_dir, "--method", "tools/call", "--tool-name", "execute", "--tool-arg", "code=6*7")
    assert result["structuredContent"]["return_value"] == 42  # type: ignore[index]


def test_the_official_inspector_lists_and_calls_over_http(data_dir: Path, url: str) -> None:
    target = [url, "--transport", "http"]
    tools = inspect(target, data_dir, "--method", "tools/list")["tools"]
    assert isinstance(tools, list) and len(tools) > 10
    result = inspect(target, data_dir, "--method", "tools/call", "--tool-name", "execute", "--tool-arg", "code=6*7")
    assert result["structuredContent"]["return_value"] == 42  # type: ignore[index]


def test_without_wasmtime_making_the_programs_is_refused_in_one_line() -> None:
    tried = without("wasmtime", ["assets"])
    assert tried.returncode == 2
    assert tried.stderr == "quire: The programs are compiled by wasmtime: pip install 'quire[wasm]'.\n"
