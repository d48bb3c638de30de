"""Capabilities are installed in each way, refused with the reason, and kept over resets, restarts and rollbacks."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from tests.support import preloaded
from tests.support.backends import BACKENDS
from tests.support.notebooks import Book, new_book
from tests.support.processes import free_port, listening
from tests.support.quick_backend import GOOD, Quick, install, installed, misbehaving
from tests.support.servers import SharedServers, call, server_environment, stdio_client, text
from tests.support.waiting import DEADLINE

TOKEN = "tok-7c1e88d04ab2f9"
MARK = f"98765.{os.getpid()}"  # an argument by which this process knows their command lines


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    return {"connect_timeout": 20, "environment": {"MY_SECRET": TOKEN}}


@pytest.fixture
async def hasty(shared_servers: SharedServers) -> Client[Any]:
    """A client of a server that waits 2 s for a backend. Nothing is installed there."""
    return await shared_servers.client(connect_timeout=2)


@pytest.fixture
def quick(tmp_path: Path) -> Quick:
    return Quick(journal=tmp_path / "journal")


@pytest.fixture
async def client(book: Book) -> AsyncIterator[Client[Any]]:
    """A client of the module's server. Capabilities that a test installs are uninstalled after it."""
    yield book.client
    for name in await installed(book.client):
        await call(book.client, "uninstall_capability", name=name)


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """The address of the good backend over HTTP, which wants the token."""
    with listening([sys.executable, str(BACKENDS / "good.py"), "http", TOKEN]) as (port, _):
        yield f"http://127.0.0.1:{port}/mcp"


# Ways to install


async def test_a_command_is_installed_described_searched_and_removed(client: Client[Any], quick: Quick) -> None:
    done = await install(client, "quick", quick.command)
    assert done.structured_content["name"] == "quick" and "echo_text" in done.structured_content["methods"]
    assert "echo_text(text: str)" in text(done) and "inputSchema" not in text(done)
    assert await installed(client) == {"quick": "17 methods, connected"}
    whole = await call(client, "describe_capability", name="quick")
    assert "quick.add(a: int, b: int = 1) -> Text\n\nThe sum of two numbers." in text(whole)
    assert text(whole).count("where that is JSON, .json() reads it") == 1
    assert not {line for line in text(done).splitlines() if "(" in line} & set(text(whole).splitlines())
    one = await call(client, "describe_capability", name="quick", method="echo_text")
    assert text(one).startswith("quick.echo_text(text: str) -> Text") and "'echo-text'" in text(one)
    same = await call(client, "describe_capability", name="quick", method="echo-text")
    assert text(same) == text(one)
    found = await call(client, "search_capabilities", query="sum", limit=1)
    assert found.structured_content["methods"] == ["quick.add(a: int, b: int = 1) -> Text  # The sum of two numbers"]
    assert (await call(client, "execute", code="quick.echo(5)")).structured_content["return_value"] == "5"
    gone = await call(client, "uninstall_capability", name="quick")
    assert not gone.is_error and await installed(client) == {}
    quick.is_over()
    after = await call(client, "execute", code="'quick' in caps, 'quick' in dir(__builtins__)")
    assert after.structured_content["return_value"] == [False, False]


async def test_who_kept_an_uninstalled_one_is_told_how_to_have_it_again(client: Client[Any], quick: Quick) -> None:
    await install(client, "quick", quick.command)
    await call(client, "execute", code="kept = quick\nmethod = quick.echo")
    await call(client, "uninstall_capability", name="quick")
    for code in ("kept.echo(1)", "method(1)", "kept.resources()"):
        found = (await call(client, "execute", code=code)).structured_content
        assert found["error_type"] == "CapabilityGone", found
        assert "caps.install('quick'" in found["error_message"]
    await install(client, "quick", quick.command)
    again = await call(client, "execute", code="kept.echo(1), method(2), quick is kept")
    assert again.structured_content["return_value"] == ["1", "2", True]


async def test_a_token_is_referred_to_and_is_nowhere_but_in_the_server(
    data_dir: Path, guarded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOD_TOKEN", TOKEN)
    said: list[Any] = []
    async with stdio_client(data_dir) as client:
        headers = {"Authorization": "Bearer env:GOOD_TOKEN"}
        said.append(await call(client, "install_capability", name="good", url=guarded, headers=headers))
        assert not said[0].is_error, text(said[0])
        kept = "kept = good.echo('hello')\nkept"
        said.append(await call(client, "execute", code=kept))
        assert said[-1].structured_content["return_value"] == "hello"
        halves = TOKEN[:9], TOKEN[9:]
        search = f"""
def search():
    import gc, os
    wanted = ''.join({halves!r})
    places = [str(key) for key, value in os.environ.items() if wanted in value]
    places += ['/proc/self/environ'] if wanted.encode() in open('/proc/self/environ', 'rb').read() else []
    for each in gc.get_objects():
        values = list(each.values()) if type(each) is dict else each if type(each) in (list, tuple, set) else ()
        places += [str(type(each)) for value in values if type(value) is str and wanted in value]
        places += [str(type(each)) for value in values if type(value) is bytes and wanted.encode() in value]
    return places
search()
"""
        said.append(await call(client, "execute", code=search))
        assert said[-1].structured_content["return_value"] == [], "the kernel has the token"
        said.append(await call(client, "execute", code="repr(caps), good.describe(), dir(good), vars(good.echo)"))
        for tool, given in (
            ("state", {}),
            ("describe_capability", {"name": "good"}),
            ("search_capabilities", {"query": "token"}),
            ("save_state", {"name": "kept"}),
            ("list_notebooks", {}),
        ):
            said.append(await call(client, tool, **given))
            assert not said[-1].is_error, text(said[-1])
        shown = [f"{text(each)}{each.structured_content}" for each in said]
        assert [each for each in shown if TOKEN in each] == []
    files = [path for path in data_dir.rglob("*") if path.is_file()]
    assert len(files) > 3 and [path for path in files if TOKEN.encode() in path.read_bytes()] == []
    assert [path for path in files if path.suffix == ".json" and "env:GOOD_TOKEN" in path.read_text()] != []
    async with stdio_client(data_dir) as client:
        again = await call(client, "execute", code="good.echo('again')")
        assert again.structured_content["return_value"] == "again", text(again)


async def test_a_variable_that_a_clients_file_refers_to_is_not_in_the_kernel(
    data_dir: Path, quick: Quick, tmp_path: Path
) -> None:
    command, *arguments = shlex.split(quick.command)
    references = {"quick": ("ONE_TOKEN", "${ONE_TOKEN}"), "other": ("TWO_TOKEN", "env:TWO_TOKEN")}
    environment = {variable: TOKEN for variable, _ in references.values()}
    entries = {
        name: {"command": command, "args": arguments, "env": {"KEY": reference}}
        for name, (_, reference) in references.items()
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    for start in ("first", "restart"):
        async with stdio_client(data_dir, environment=environment) as client:
            for name, (variable, _) in references.items():
                if start == "first":
                    done = await call(client, "install_capability", name=name, config=str(tmp_path / "mcp.json"))
                    assert not done.is_error, text(done)
                called = await call(client, "execute", code=f"{name}.echo(1)")
                assert called.structured_content["return_value"] == "1", text(called)
                look = f"import os\nos.environ.get({variable!r}, '')"
                assert (await call(client, "execute", code=look)).structured_content["return_value"] == ""


async def test_a_secret_that_a_backend_prints_is_replaced(client: Client[Any]) -> None:
    await install(client, "leaks", misbehaving("leaks"), env={"SECRET": "env:MY_SECRET"})
    tries = "try:\n        print(leaks.poke())\n    except ToolError as error:\n        print(error)"
    code = f"for n in range(3):\n    {tries}"
    result = await call(client, "execute", code=code)
    assert TOKEN not in f"{text(result)}{result.structured_content}"
    assert "[secret]" in result.structured_content["stdout"]
    state = await call(client, "state")
    assert TOKEN not in f"{text(state)}{state.structured_content}"


async def test_a_secret_that_is_given_as_it_is_is_pointed_out(client: Client[Any], quick: Quick) -> None:
    done = await install(client, "quick", quick.command, env={"API_KEY": "plain-words", "COLOUR": "red"})
    assert "API_KEY is kept as given" in text(done) and "env:NAME" in text(done)
    assert "COLOUR" not in text(done) and "plain-words" not in text(done)


async def test_a_reference_to_nothing_is_refused_by_name(client: Client[Any], quick: Quick) -> None:
    done = await call(
        client, "install_capability", name="quick", server_command=quick.command, env={"KEY": "env:NOT_SET_ANYWHERE"}
    )
    assert done.is_error and "env:NOT_SET_ANYWHERE" in text(done)
    assert await installed(client) == {} and quick.pids() == []


async def test_a_file_with_a_token_is_referred_to(client: Client[Any], guarded: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    headers = {"Authorization": f"Bearer file:{tmp_path / 'token'}"}
    done = await call(client, "install_capability", name="good", url=guarded, headers=headers)
    assert not done.is_error, text(done)
    assert (await call(client, "execute", code="good.add(1)")).structured_content["return_value"] == 2


async def test_an_entry_of_mcp_servers_is_installed(client: Client[Any], quick: Quick) -> None:
    command, *arguments = shlex.split(quick.command)
    entry = {"command": command, "args": arguments, "env": {"COLOUR": "red"}}
    done = await call(client, "install_capability", name="quick", config=entry)
    assert not done.is_error, text(done)
    assert (await call(client, "execute", code="quick.echo(5)")).structured_content["return_value"] == "5"


@pytest.fixture
def configured(tmp_path: Path, quick: Quick) -> Path:
    command, *arguments = shlex.split(quick.command)
    servers = {"my-quick": {"command": command, "args": arguments}, "broken": {"command": "/nonexistent/program"}}
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


async def test_a_server_of_another_clients_file_is_installed_by_its_name(
    client: Client[Any], quick: Quick, configured: Path
) -> None:
    done = await call(client, "install_capability", name="my_quick", config=str(configured))
    assert not done.is_error, text(done)
    assert (await call(client, "execute", code="my_quick.echo(5)")).structured_content["return_value"] == "5"
    unknown = await call(client, "install_capability", name="other", config=str(configured))
    assert unknown.is_error and "broken, my-quick" in text(unknown)
    nowhere = await call(client, "install_capability", name="other", config="/nonexistent/mcp.json")
    assert nowhere.is_error and "/nonexistent/mcp.json" in text(nowhere)


async def test_code_installs_and_uninstalls_where_the_operator_allows_it(data_dir: Path, quick: Quick) -> None:
    async with stdio_client(data_dir, approve="caps.*=never") as client:
        code = f"made = caps.install('quick', {quick.command!r})\nmade is quick, quick.echo(1)"
        found = await call(client, "execute", code=code)
        assert found.structured_content["return_value"] == [True, "1"], text(found)
        assert await installed(client) == {"quick": "17 methods, connected"}
        gone = await call(client, "execute", code="caps.uninstall('quick')\n'quick' in caps")
        assert gone.structured_content["return_value"] is False
        quick.is_over()


# What is refused


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my-server", ["no Python name", "'my_server'"]),
        ("", ["no Python name"]),
        ("1st", ["no Python name", "'s1st'"]),
        ("a b", ["no Python name", "'a_b'"]),
        ("größe", ["no Python name"]),
        ("class", ["keyword", "'class_server'"]),
        ("print", ["builtin of Python", "'print_server'"]),
        ("caps", ["Quire's own", "'caps_server'"]),
        ("ToolError", ["Quire's own"]),
        ("_hidden", ["Quire's own", "'hidden'"]),
        ("x" * 61, ["more than 60"]),
        ("taken", ["another one has it", "uninstall_capability", "'taken_server'"]),
    ],
)
async def test_a_name_that_cannot_be_is_refused_with_one_that_can(
    client: Client[Any], quick: Quick, tmp_path: Path, name: str, words: list[str]
) -> None:
    before = {}
    if name == "taken":
        await install(client, "taken", quick.command)
        before = await installed(client)
    other = Quick(journal=tmp_path / "other")
    done = await call(client, "install_capability", name=name, server_command=other.command)
    assert done.is_error and [word for word in words if word not in text(done)] == [], text(done)
    assert await installed(client) == before and other.pids() == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["command", "url", "config"]),
        ({"server_command": "a", "url": "http://x.test"}, ["both command and url"]),
        ({"server_command": ""}, ["command"]),
        ({"server_command": "'open"}, ["cannot be read"]),
        ({"url": "ftp://x.test"}, ["http://"]),
        ({"url": "http://me:pass-w0rd@x.test/"}, ["no password"]),
        ({"server_command": "a", "headers": {"A": "b"}}, ["for a url"]),
        ({"url": "http://x.test", "env": {"A": "b"}}, ["for a command"]),
        ({"config": {"neither": 1}}, ["command", "url"]),
    ],
)
async def test_an_incomplete_or_contradictory_backend_is_refused(
    client: Client[Any], given: dict[str, Any], words: list[str]
) -> None:
    done = await call(client, "install_capability", name="new", **given)
    assert done.is_error and [word for word in words if word not in text(done)] == [], text(done)
    assert "pass-w0rd" not in text(done)
    assert await installed(client) == {}


async def test_what_is_not_there_is_named_with_what_is(client: Client[Any], quick: Quick) -> None:
    await install(client, "quick", quick.command)
    for tool, given in (
        ("uninstall_capability", {"name": "quik"}),
        ("describe_capability", {"name": "quik"}),
    ):
        done = await call(client, tool, **given)
        assert done.is_error and "'quik'" in text(done) and "quick" in text(done)
        assert text(done).endswith("install_capability adds one.")
    near = await call(client, "describe_capability", name="quick", method="ecko")
    assert near.is_error and "'ecko'" in text(near) and "echo" in text(near)
    nothing = await call(client, "search_capabilities", query="zzzz qqqq")
    assert not nothing.is_error and nothing.structured_content["methods"] == [] and "quick" in text(nothing)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param("/nonexistent/program --serve", ["/nonexistent/program"], id="does not exist"),
        pytest.param(misbehaving("exits"), ["status 1", "no database at 10.0.0.1", "set DB_URL"], id="exits"),
        pytest.param(misbehaving("silent"), ["2 s", "ready to serve"], id="never answers"),
        pytest.param(misbehaving("stubborn"), ["2 s"], id="ignores being ended"),
        pytest.param("sh -c 'cat; true'", ["did not greet as an MCP server"], id="says what it hears"),
        pytest.param(shlex.join([sys.executable, "-c", "print('Hello!')"]), ["Hello!"], id="is no server"),
        pytest.param("sh -c 'sleep $0 & exec sleep $0'", ["2 s"], id="has children"),
    ],
)
async def test_a_command_that_does_not_become_a_server_leaves_nothing(
    hasty: Client[Any], command: str, words: list[str]
) -> None:
    done = await call(hasty, "install_capability", name="bad", server_command=f"{command} {MARK}")
    assert done.is_error and [word for word in words if word not in text(done)] == [], text(done)
    assert marked() == []
    assert await installed(hasty) == {}
    code = "'bad' in caps, hasattr(__builtins__, 'bad')"
    assert (await call(hasty, "execute", code=code)).structured_content["return_value"] == [False, False]


def marked() -> list[str]:
    """The command lines of living processes that were started with the mark."""
    lines = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and MARK in (line := (entry / "cmdline").read_text().replace("\0", " ")):
                lines.append(line)
    return lines


async def test_junk_on_stdout_costs_nothing(client: Client[Any]) -> None:
    await install(client, "junk", misbehaving("junk"))
    found = await call(client, "execute", code="[junk.poke() for n in range(3)]")
    assert found.structured_content["return_value"] == ["call 1", "call 2", "call 3"]


@pytest.mark.parametrize(
    ("headers", "words"),
    [(None, ["401"]), ({"Authorization": "Bearer wrong-token"}, ["401"])],
)
async def test_a_server_that_wants_a_login_is_an_error_that_says_so(
    client: Client[Any], guarded: str, headers: dict[str, str] | None, words: list[str]
) -> None:
    done = await call(client, "install_capability", name="good", url=guarded, headers=headers)
    assert done.is_error and [word for word in words if word not in text(done)] == [], text(done)
    assert "wrong-token" not in text(done) and await installed(client) == {}


async def test_an_address_without_a_server_is_an_error_that_names_it(client: Client[Any]) -> None:
    address = f"http://127.0.0.1:{free_port()}/mcp"
    done = await call(client, "install_capability", name="good", url=address)
    assert done.is_error and address in text(done)
    assert await installed(client) == {}


# What lasts


async def test_reset_keeps_capabilities_connected(client: Client[Any], quick: Quick) -> None:
    await install(client, "quick", quick.command)
    await call(client, "execute", code="x = quick.pid()")
    await call(client, "reset")
    assert await installed(client) == {"quick": "17 methods, connected"}
    found = await call(client, "execute", code="int(quick.pid()), 'x' in globals()")
    assert found.structured_content["return_value"] == [quick.pids()[0], False]
    assert len(quick.pids()) == 1


async def test_after_a_restart_they_are_connected_on_first_use_or_said_to_be_gone(
    data_dir: Path, quick: Quick, tmp_path: Path
) -> None:
    program = tmp_path / "server.py"
    program.write_text((BACKENDS / "quick.py").read_text())
    async with stdio_client(data_dir) as client:
        await install(client, "quick", quick.command)
        await install(client, "gone", shlex.join([sys.executable, str(program), str(tmp_path / "other")]))
        await call(client, "execute", code="kept = quick\nfound = quick.person('Ada')")
    quick.is_over()
    program.unlink()
    async with stdio_client(data_dir) as client:
        waits = "17 methods, not connected yet"
        assert await installed(client) == {"quick": waits, "gone": waits}
        assert "add(a: int" in text(await call(client, "describe_capability", name="quick"))
        assert len(quick.pids()) == 1
        again = await call(client, "execute", code="quick.echo(5), kept.echo(6), kept is quick, found.home.city")
        assert again.structured_content["return_value"] == ["5", "6", True, "Bern"], text(again)
        assert (await installed(client))["quick"] == "17 methods, connected"
        assert len(quick.pids()) == 2
        found = (await call(client, "execute", code="gone.echo(1)")).structured_content
        assert found["error_type"] == "CapabilityGone", found
        assert "reinstall" in found["error_message"] and "server.py" not in found["error_message"]
        assert "server.py" in found["stderr"]  # for the reader of the cell, not for its code
        assert (await installed(client))["gone"].startswith("17 methods, lost: ")
        await call(client, "uninstall_capability", name="gone")
        assert await installed(client) == {"quick": "17 methods, connected"}


async def test_after_a_rollback_to_before_it_was_installed_it_is_there(
    client: Client[Any], book: Book, quick: Quick
) -> None:
    await book.value("x = 1\nx")
    await book.protected()
    await install(client, "quick", quick.command)
    await book.value("x = quick.echo(2)\nx")
    await book.protected()
    back = await book.ask("rollback", to=0)
    assert not back.is_error, text(back)
    assert await book.value("x, quick.echo(3)") == [1, "3"]
    assert len(quick.pids()) == 1


async def test_a_branch_and_a_second_notebook_have_them_too(client: Client[Any], book: Book, quick: Quick) -> None:
    await install(client, "quick", quick.command)
    await book.value("method = quick.echo\nmethod(1)")
    await book.protected()
    branched = await book.ask("branch_notebook", name="twin")
    assert not branched.is_error, text(branched)
    assert await Book(client=client, name="twin").value("method(2), quick.echo(3), method is quick.echo") == [
        "2",
        "3",
        True,
    ]
    async with new_book(client) as second:
        assert await second.value("quick.echo(4)") == "4"
        assert await installed(client, second.name) == {"quick": "17 methods, connected"}
    assert len(quick.pids()) == 1


async def test_what_one_server_installs_another_on_the_same_data_has(data_dir: Path, quick: Quick) -> None:
    async with stdio_client(data_dir) as one, stdio_client(data_dir) as two:
        here, there = Book(client=one, name="here"), Book(client=two, name="there")
        for book in (here, there):
            await call(book.client, "create_notebook", name=book.name)
            await book.value("1")
        await install(one, "quick", quick.command)
        assert await here.value("quick.echo(1)") == "1"
        assert await there.value("quick.echo(2)") == "2"  # with no word to the other server in between
        assert await installed(two, "there") == {"quick": "17 methods, connected"}
        assert len(quick.running()) == 2
        await call(two, "uninstall_capability", name="quick")
        assert await here.value("'quick' in list(caps)") is False
        assert await installed(one, "here") == {}
        quick.is_over()


# On the command line


def quire(data_dir: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**server_environment(data_dir), **environment}
    command = preloaded.quire("capability", *arguments)
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE)


def test_the_command_line_adds_lists_and_removes(data_dir: Path, quick: Quick) -> None:
    none = quire(data_dir, "list")
    assert none.returncode == 0 and "No capability is installed" in none.stdout
    added = quire(data_dir, "add", "quick", "--command", quick.command, "--env", "COLOUR=red")
    assert (added.returncode, "Installed quick: 17 methods" in added.stdout) == (0, True), added.stderr
    quick.is_over()
    listed = quire(data_dir, "list")
    assert "quick" in listed.stdout and "17" in listed.stdout and "quick.py" in listed.stdout
    twice = quire(data_dir, "add", "quick", "--command", quick.command)
    assert twice.returncode == 2 and "another one has it" in twice.stderr and "Traceback" not in twice.stderr
    removed = quire(data_dir, "remove", "quick")
    assert removed.returncode == 0 and "Uninstalled quick" in removed.stdout
    again = quire(data_dir, "remove", "quick")
    assert again.returncode == 2 and "'quick'" in again.stderr and "Traceback" not in again.stderr


def test_a_url_with_a_header_is_added(data_dir: Path, guarded: str) -> None:
    given = ("--url", guarded, "--header", "Authorization=Bearer env:GOOD_TOKEN")
    without = quire(data_dir, "add", "good", *given)
    assert without.returncode == 2 and "GOOD_TOKEN" in without.stderr
    added = quire(data_dir, "add", "good", *given, GOOD_TOKEN=TOKEN)
    assert added.returncode == 0 and "Installed good" in added.stdout, added.stderr
    assert TOKEN not in added.stdout + quire(data_dir, "list").stdout


def test_import_names_the_servers_and_takes_over_those_chosen(data_dir: Path, quick: Quick, configured: Path) -> None:
    seen = quire(data_dir, "import", str(configured))
    assert seen.returncode == 0 and "my-quick, broken" in seen.stdout and "Name the ones to import." in seen.stdout
    assert "No capability is installed" in quire(data_dir, "list").stdout and quick.pids() == []
    taken = quire(data_dir, "import", str(configured), "my-quick", "broken")
    assert taken.returncode == 1 and "Installed my_quick: 17 methods" in taken.stdout
    assert "broken: " in taken.stderr and "/nonexistent/program" in taken.stderr
    listed = quire(data_dir, "list").stdout
    assert "my_quick" in listed and "broken" not in listed


def test_import_from_a_client_by_its_word(data_dir: Path, tmp_path: Path, configured: Path) -> None:
    (tmp_path / "home" / ".cursor").mkdir(parents=True)
    (tmp_path / "home" / ".cursor" / "mcp.json").write_text(configured.read_text())
    seen = quire(data_dir, "import", "cursor", HOME=str(tmp_path / "home"))
    assert seen.returncode == 0 and "my-quick" in seen.stdout, seen.stderr
    unknown = quire(data_dir, "import", "emacs", HOME=str(tmp_path / "home"))
    assert unknown.returncode == 2 and "cursor" in unknown.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["add"], "The actions are list, add NAME"),
        (["remove"], "The actions are list, add NAME"),
        (["list", "extra"], "The actions are list, add NAME"),
        (["add", "x", "--command", "a", "--env", "novalue"], "NAME=VALUE"),
        (["add", "x"], "command"),
        (["add", "not a name", "--command", "a"], "no Python name"),
        (["add", "x", "--command", "/nonexistent/program"], "/nonexistent/program"),
    ],
)
def test_a_wrong_word_on_the_command_line_is_told_in_a_line(data_dir: Path, arguments: list[str], says: str) -> None:
    done = quire(data_dir, *arguments)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and os.linesep not in done.stderr.strip()


def test_installed_by_the_command_line_it_is_there_for_a_running_server(data_dir: Path, quick: Quick) -> None:
    assert quire(data_dir, "add", "good", "--command", GOOD).returncode == 0
    ran = subprocess.run(
        preloaded.quire("exec", "good.add(2, 3)"),
        env=server_environment(data_dir),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (ran.returncode, ran.stdout) == (0, "5\n"), ran.stderr
