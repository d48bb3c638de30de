"""The process that holds guests, should WebAssembly have a hole: what it gave up, and whose it is."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import quire
from quire.core.errors import InvalidRequest
from quire.frontends.python import Quire
from quire.runtimes.wasm.reach import LAYERS, Reach
from tests.support.http_users import Users
from tests.support.processes import processes_of
from tests.support.security import children
from tests.support.security.guests import PYTHON, RUNTIMES, SECRET, Book, Outside
from tests.support.servers import call, http_server, keywords, text
from tests.support.waiting import until
from tests.support.wasm.assets import assets_dir

BREAK_OUT = """
import mmap, signal, socket, subprocess
from quire.runtimes.wasm.host import walls
secret, mine, read = (os.path.join(os.getcwd(), name) for name in ("secret", "mine", "read"))
for folder in (mine, read):
    os.mkdir(folder)
    open(os.path.join(folder, "file"), "w").close()
open(secret, "w").close()
layers = walls.put_up([read], [mine])
started = []
thread = threading.Thread(target=lambda: started.append(1))
thread.start()
thread.join()
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)  # as a compiler needs it
parent = os.getppid()
answer = {
    "layers": layers,
    "a thread": started,
    "its own": [tried(open, mine + "/file", "w"), tried(os.rename, mine + "/file", mine + "/other")],
    "to read": [tried(open, read + "/file"), tried(open, read + "/file", "w"), tried(os.unlink, read + "/file")],
    "others": [tried(open, secret), tried(open, secret, "w"), tried(os.listdir, "."), tried(open, "/etc/passwd")],
    "sockets": [tried(socket.socket, family) for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)]
    + [tried(socket.socketpair)],
    "programs": [tried(os.execv, sys.executable, ["python"]), tried(os.fork), tried(subprocess.run, ["true"])],
    "signals": [tried(os.kill, parent, 0), tried(signal.pidfd_send_signal, 0, 0), tried(os.pidfd_open, parent)],
    "memory of others": tried(open, f"/proc/{parent}/environ"),
}
"""
_IS_HOST = "quire.runtimes.wasm.host"
EVERY = ("landlock", "seccomp", "no_new_privs", "capabilities", "rlimits")


@pytest.fixture(params=children.WHO)
def who(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(who: str) -> Iterator[Path]:
    with children.own_folder(who) as found:
        yield found


@pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")
def test_a_process_behind_these_walls_reads_writes_and_computes_and_nothing_else(who: str, folder: Path) -> None:
    answer = children.run(who, BREAK_OUT, folder)
    assert {name for name, why in answer["layers"].items() if not why} == set(EVERY), answer["layers"]
    assert answer["a thread"] == [1] and answer["its own"] == ["done"] * 2
    assert answer["to read"] == ["done", "EACCES", "EACCES"]
    assert answer["others"] == ["EACCES"] * 4
    assert answer["sockets"] == ["EPERM"] * 4 and answer["programs"] == ["EPERM"] * 3
    assert answer["signals"] == ["EPERM"] * 3
    assert answer["memory of others"] in ("EACCES", "EPERM")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
async def test_every_host_is_behind_them_and_has_none_of_the_server_s_secrets(
    attacker: Book, neighbour: Book, outside: Outside
) -> None:
    await attacker.is_as_before()
    hosts = _hosts(outside.data)
    assert hosts
    for host in hosts:
        said = dict(line.split(":\t", 1) for line in (host / "status").read_text().splitlines() if ":\t" in line)
        assert (said["NoNewPrivs"], said["Seccomp"], said["CapEff"]) == ("1", "2", "0" * 16)
        for thread in (host / "task").iterdir():
            assert "Seccomp:\t2" in (thread / "status").read_text()
        assert SECRET not in (host / "environ").read_bytes().decode()
    await neighbour.was_not_disturbed()


def _hosts(data: Path, server: int | None = None) -> list[Path]:
    """Of a server on that data directory, as folders of /proc; it is this process, unless it is said."""
    every = [Path("/proc", str(pid)) for pid in processes_of(server or os.getpid())]
    return [each for each in every if _IS_HOST in _words(each) and any(str(data) in word for word in _words(each))]


def _words(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_text().split("\0")
    except OSError:  # it has ended since
        return [""]


BLOCK = "import time\ntime.sleep.__kwdefaults__['_sleep'](1000)"  # outside of WebAssembly, where nothing stops it


@PYTHON
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
async def test_one_that_cannot_be_stopped_takes_others_with_it_once(
    attacker: Book, neighbour: Book, outside: Outside
) -> None:
    await neighbour.is_as_before()
    assert (await attacker.run(BLOCK, timeout=0.5)).state == "TIMEOUT"
    told = await neighbour.run("kept + 1")
    assert await told.text() == "42" and "died between two runs and was restored" in told.notice
    await attacker.is_as_before()
    assert len(_hosts(outside.data)) == 2, "it has a host of its own now"
    assert (await attacker.run(BLOCK, timeout=0.5)).state == "TIMEOUT"
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()
    await attacker.notebook.reset()

    async def ended() -> bool:
        return len(_hosts(outside.data)) == 1

    await until(ended, "that host ends with it")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
async def test_users_never_share_a_host(data_dir: Path) -> None:
    settings = {"toolsets": "sandbox,users", "preload": "", "spare_kernels": 0, "auth": "tokens"}
    with http_server(data_dir, own_child=True, assets_dir=assets_dir(), **settings) as (url, process):
        users = Users(url, data_dir)
        async with users.client("ann") as ann, users.client("bob") as bob:
            for client in (ann, bob, ann):
                ran = await call(client, "execute_code", code="x = 1", session_id=None)
                assert ran.structured_content["success"], text(ran)
            await call(ann, "create_session", session_id="another")
            await call(ann, "execute_code", code="x = 2", session_id="another")
            hosts = _hosts(data_dir, process.pid)
            assert len(hosts) == 2
            images = {json.loads(_words(host)[-2])["writable"][0] for host in hosts}
            assert len(images) == 2, "nor see the other's images"
            await call(bob, "execute_code", code=BLOCK, timeout=0.5)
            again = await call(ann, "execute_code", code="x")
            assert again.structured_content["return_value"] == 1 and "notice" not in again.structured_content


@pytest.mark.parametrize("runtime", RUNTIMES, indirect=True, scope="module")
async def test_the_runtime_says_which_walls_its_hosts_have(opened: Quire, runtime: str) -> None:
    said = {layer.name: layer.why_not for layer in (await opened._app.kernels.runtimes.describe(runtime)).layers}
    assert said.keys() >= {"wasm", *LAYERS}
    if sys.platform == "linux" and os.uname().machine in ("x86_64", "aarch64"):
        assert said["seccomp"] == "" and said["no_new_privs"] == ""


async def test_a_program_that_is_not_compiled_is_so_before_there_is_a_host(tmp_path: Path) -> None:
    """A host could not: it writes nothing there, and what compiles has threads that would be outside the walls."""
    assets = tmp_path / "assets"
    assets.mkdir(mode=0o700)
    for file in assets_dir().glob("quickjs.wasm"):  # unless the package carries it
        shutil.copy(file, assets)
    async with quire.open(
        tmp_path / "data", kernel_preload="", kernel_spare_kernels=0, store_assets_dir=assets
    ) as opened:
        book = await opened.create("book", runtime="wasm-javascript", fuel=10**9)
        assert await (await book.add_cell("40 + 2")).text() == "42"
    assert len(list((assets / "javascript").glob("*.cwasm"))) == 2, "with fuel and without"


async def test_without_the_sandbox_hosts_run_as_they_are(tmp_path: Path) -> None:
    settings = {"preload": "", "spare_kernels": 0, "assets_dir": assets_dir(), "sandbox": "off"}
    async with quire.open(tmp_path / "data", **keywords(settings)) as opened:
        book = await opened.create("book", runtime="wasm-javascript")
        assert await (await book.add_cell("40 + 2")).text() == "42"
        said = {
            layer.name: layer.why_not
            for layer in (await opened._app.kernels.runtimes.describe("wasm-javascript")).layers
        }
        assert {said[name] for name in LAYERS} == {"the setting sandbox.mode is off"} and said["wasm"] == ""


def test_a_wall_that_is_insisted_on_and_does_not_stand_is_a_refusal(tmp_path: Path) -> None:
    reach = Reach(sandbox="require:landlock,pid", workspaces=(tmp_path,))
    reach.check({"landlock": "", "seccomp": "it is missing"})  # what was not asked for, and what no host has
    with pytest.raises(InvalidRequest, match=r"landlock \(this system has no Landlock\)"):
        reach.check({"landlock": "this system has no Landlock"})
