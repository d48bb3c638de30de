"""What stands is said, what is required and missing is refused, and a walled notebook lives as any other does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from quire.core.limits.sandbox_layers import LAYERS
from quire.runtimes.sandbox import cgroups
from tests.support.notebooks import Book, asleep
from tests.support.processes import alive, parent
from tests.support.security.walled_servers import NOT_ORDINARY, ORDINARY, UID, WALLS, named, walled
from tests.support.servers import call, server_environment, text
from tests.support.waiting import wait_until

INSIDE = "import os\n[os.readlink(f'/proc/self/ns/{name}') for name in ('user', 'mnt', 'pid', 'net', 'ipc')]"


def doctor(user: str, folder: Path, **settings: Any) -> str:
    command = [sys.executable, "-m", "quire", "doctor"]
    env = server_environment(folder / "data", preload="", mounts="", **settings)
    if user == "ordinary" and os.getuid() == 0:
        command = [sys.executable, str(ORDINARY), str(UID), *command[1:]]
        env["HOME"] = str(folder)
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout


# ---- what stands, and what is said of it ----


async def test_state_names_the_layers_that_stand_and_why_others_do_not(book: Book, user: str) -> None:
    said = (await book.ask("state")).structured_content["sandbox"]
    standing, _, off = said.partition("; off: ")
    expected = [name for name in LAYERS if user == "root" or name not in NOT_ORDINARY]
    assert [name for name in standing.split(", ") if name not in NOT_ORDINARY or user == "root"] == expected
    if user == "ordinary":
        assert "uid" in off and "only root can give kernels user ids of their own" in off
    else:
        assert off == ""


def test_doctor_lists_every_layer(user: str, folder: Path) -> None:
    said = doctor(user, folder)
    for name in LAYERS:
        [line] = [
            line for line in said.splitlines() if f"sandbox: {name} " in f"{line} " or f"sandbox: {name}:" in line
        ]
        if name not in NOT_ORDINARY or user == "root":
            assert line.rstrip().endswith("on"), line
    off = [line for line in doctor(user, folder, sandbox="off").splitlines() if line.strip().startswith("sandbox: ")]
    assert len(off) == len(LAYERS) and all("the setting sandbox.mode is off" in line for line in off)


async def test_requiring_what_this_user_cannot_have_refuses_by_name(user: str, folder: Path) -> None:
    if user == "root":
        pytest.skip("root can have all")
    async with walled(user, folder, sandbox="require:uid,net") as client:
        refused = await call(client, "execute", code="1")
        assert refused.is_error
        assert (
            "No kernel was started: the setting sandbox.mode requires what this machine does not give: uid (only root"
            in (text(refused))
        )
        assert "`quire doctor` shows every layer" in text(refused) and "net (" not in text(refused)
        assert not (await call(client, "list_notebooks")).is_error  # the server goes on


async def test_a_setting_that_names_no_layer_is_refused_at_the_start(user: str, folder: Path) -> None:
    env = server_environment(folder / "data", sandbox="require:gpu")
    ended = subprocess.run(
        [sys.executable, "-m", "quire", "doctor"], env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode != 0 and "there is no layer gpu; there are cgroup, user" in ended.stderr + ended.stdout


async def test_off_is_said_in_the_state(user: str, folder: Path) -> None:
    async with walled(user, folder, sandbox="off") as client:
        book = await named(client, "open")
        assert (await book.ask("state")).structured_content["sandbox"] == (
            "none: cells run with the rights of the server's user (the setting sandbox.mode is off)"
        )
        own = [os.readlink(f"/proc/self/ns/{name}") for name in ("user", "pid", "net", "ipc")]
        user_, _, pid, net, ipc = await book.value(INSIDE)
        assert [user_, pid, net, ipc] == own


# ---- a walled notebook's life ----


async def test_a_branch_lives_on_after_its_origin_s_kernel_ends(client: Client[Any]) -> None:
    book = await named(client, "trunk")
    await book.run("x = [1]")
    place = await book.value(INSIDE)
    await book.protected()
    await book.ask("branch_notebook", name="bough", use=False)
    bough = Book(client=client, name="bough")
    await bough.run("x.append(2)")
    assert await bough.value(INSIDE) == [place[0], *await _mount(bough), *place[2:]]
    await bough.protected()
    await bough.ask("branch_notebook", name="twig", use=False)
    twig = Book(client=client, name="twig")
    first = await book.supervisor()
    await book.ask("reset")  # its supervisor is the first process of their namespace
    assert await bough.value("x") == [1, 2] and await twig.value("x") == [1, 2]
    assert alive(first)
    assert (await bough.run("os.abort()")).structured_content["state"] == "CRASHED"
    assert await bough.value("x") == [1, 2]
    await bough.ask("reset")
    assert await twig.value("x") == [1, 2]
    await twig.ask("reset")
    wait_until(lambda: not alive(first), "the last branch took the namespace with it")
    assert await book.value("1") == 1


async def _mount(book: Book) -> list[str]:
    return [(await book.value(INSIDE))[1]]


async def test_crash_hang_rollback_and_reset_stay_behind_the_walls(client: Client[Any]) -> None:
    book = await named(client, "lives")
    place = await book.value("x = 41\n" + INSIDE)
    await book.protected()
    assert (await book.run("import ctypes; ctypes.string_at(0)")).structured_content["state"] == "CRASHED"
    assert await book.value("x") == 41
    hung = await book.run("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", timeout=1)
    assert hung.structured_content["state"] == "TIMEOUT" and await book.value("x") == 41
    await book.run("x = 42")
    undone = await book.ask("rollback", to=0)
    assert not undone.is_error and await book.value("x") == 41
    assert await book.value(INSIDE) == place
    await book.ask("rollback", to="start")
    again = await book.value(INSIDE)
    assert [again[0], *again[2:]] == [place[0], *place[2:]] and again[0] != os.readlink("/proc/self/ns/user")
    await book.run("open('/tmp/mark', 'w').close()")
    await book.ask("reset")
    assert await book.value("__import__('os').path.exists('/tmp/mark')") is False
    fresh = await book.value(INSIDE)  # the system may give the new ones the numbers of the old
    assert not {*fresh} & {os.readlink(f"/proc/self/ns/{name}") for name in ("user", "net", "pid")}


async def test_state_comes_back_after_a_restart_and_after_hibernation(user: str, folder: Path) -> None:
    data = folder / "restarted"
    async with walled(user, data) as client:
        book = await named(client, "kept")
        await book.run("x = {'a': [1, 2]}\nopen('file', 'w').write('mine')")
        await book.protected()
        saved = await book.ask("save_state")
        assert not saved.is_error, text(saved)
    async with walled(user, data, hibernate_after=0.5) as client:
        book = Book(client=client, name="kept")
        assert await book.value("x, open('file').read()") == [{"a": [1, 2]}, "mine"]
        assert (await book.value(INSIDE))[2] != os.readlink("/proc/self/ns/pid")
        await book.run("x = 41")
        await asleep(book)
        assert await book.value("x") == 41
        assert (await book.value(INSIDE))[2] != os.readlink("/proc/self/ns/pid")


async def test_a_server_that_was_killed_leaves_no_process_and_no_control_group(user: str, folder: Path) -> None:
    data = folder / "killed"
    async with walled(user, data) as client:
        book = await named(client, "main")
        daemon = await book.process("__import__('subprocess').Popen(['sleep', '1000'], start_new_session=True).pid")
        supervisor = await book.supervisor()
        zygote = parent(supervisor)
        server = parent(zygote)
        mine = groups(server)
        assert (user == "root") is bool(mine)
        os.kill(server, signal.SIGKILL)
        for pid in (daemon, supervisor, zygote, server):
            wait_until(lambda pid=pid: not alive(pid), "what the server started is gone")
    async with walled(user, data) as client:
        assert await (await named(client, "main")).value("1") == 1
        assert not groups(server)


def groups(server: int) -> set[Path]:
    """A server's control groups, in every tree."""
    own, mounts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
    folders = {place for folder, _ in cgroups._trees(own, mounts) for place in (folder, folder.parent)}
    return {group for folder in folders for group in folder.glob(f"quire_{server}_*")}


# ---- environments of their own ----


async def test_what_a_cell_plants_in_its_environment_runs_inside_only(client: Client[Any]) -> None:
    made = await call(client, "create_notebook", name="own", python="venv")
    assert not made.is_error, text(made)
    book = Book(client=client, name="own")
    place = await book.value("import os, sys\n[sys.prefix, os.getcwd()]")
    assert place[0] == f"{place[1]}/.venv"
    planted = (
        "import os\nwith open(os.path.dirname(sys.prefix) + '/sign', 'a') as file:\n"
        "    print(os.readlink('/proc/self/ns/user'), os.path.exists('/etc/shadow'), file=file)\n"
    )
    await book.value(
        "import site\npackages = site.getsitepackages()[0]\n"
        f"open(packages + '/sitecustomize.py', 'w').write('import sys\\n' + {planted!r})\n"
        "open(packages + '/planted.pth', 'w').write('import sitecustomize\\n')"
    )
    await book.ask("reset")
    again = await book.value(INSIDE)
    await call(client, "create_notebook", name="another")  # of the server's own interpreter
    assert await Book(client=client, name="another").value("1") == 1
    signs = set((await book.value("open('sign').read()")).splitlines())
    assert signs == {f"{again[0]} False"}
    assert again[0] != os.readlink("/proc/self/ns/user")


async def test_an_interpreter_that_a_cell_could_have_written_is_never_started(user: str, folder: Path) -> None:
    shared, escaped = folder / "shared", folder / "escaped"
    shared.mkdir(exist_ok=True)
    os.chown(shared, folder.stat().st_uid, folder.stat().st_gid)
    async with walled(user, folder / "forged", mounts=f"{shared}:rw") as client:
        book = await named(client, "forger")
        forged = f"#!/bin/sh\ntouch {escaped}\n"
        for number, place in enumerate(("python", f"{shared}/python", "link")):
            code = f"open({place!r}, 'w').write({forged!r})\nos.chmod({place!r}, 0o755)\n"
            if place == "link":
                code = "os.symlink('/usr/bin/python3', 'link')\n"
            path = await book.value(f"import os\n{code}os.path.abspath({place!r})")
            made = await call(client, "create_notebook", name=f"forged {number}", python=path)
            ran = made if made.is_error else await call(client, "execute", code="1", notebook=f"forged {number}")
            assert ran.is_error and "lies where cells can write" in text(ran), text(ran)
    assert not escaped.exists()


async def test_pip_installs_into_the_workspace_where_the_index_is_granted(user: str, folder: Path) -> None:
    data = folder / "pip"
    async with walled(user, data, network="pypi.org,files.pythonhosted.org") as client:
        book = await named(client, "installs")
        assert "To install it: %pip install mysqlclient" in text(await book.run("import MySQLdb"))
        installed = await book.run("%pip install -q iniconfig==2.0.0", timeout=120)
        if "could not be reached" in text(installed) or "502" in text(installed):
            pytest.skip("the index cannot be reached from here")
        assert not installed.is_error, text(installed)
        where = (
            "import importlib.metadata, os, iniconfig\n"
            "[os.path.relpath(iniconfig.__file__).split('/')[0], importlib.metadata.version('iniconfig')]"
        )
        assert await book.value(where) == [".packages", "2.0.0"]
        await book.ask("reset")
        assert (await book.value(where))[0] == ".packages"
    async with walled(user, data) as client:
        assert (await Book(client=client, name="installs").value(where))[0] == ".packages"


async def test_pip_without_a_grant_names_what_to_grant(book: Book) -> None:
    installed = await book.run("%pip install iniconfig==2.0.0", timeout=120)
    assert "Not connected to pypi.org:443: this notebook was not granted it (setting sandbox.network)." in text(
        installed
    )


async def test_missing_module_names_the_hosts_to_grant(book: Book) -> None:
    missing = text(await book.run("import MySQLdb"))
    assert (
        "It is in the package mysqlclient. %pip install needs pypi.org and files.pythonhosted.org, which this notebook "
        "is not granted (setting sandbox.network)." in missing
    )


def test_the_walls_of_these_tests_are_all_there_are() -> None:
    assert tuple(WALLS.split(",")) == LAYERS
