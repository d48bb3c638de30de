"""Files that must not come: tricks that a cell plants in its workspace, and paths that a client makes up."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from tests.support.disks import with_mount
from tests.support.servers import call, stdio_client, text
from tests.support.waiting import DEADLINE

SECRET = "not-for-anybody-7431"


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """A server, a notebook of it, and what is to be reached from there."""

    client: Client[Any]
    outside: Path
    data: Path

    async def workspace(self) -> Path:
        return Path((await self.notebooks())[0]["workspace"])

    async def notebooks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await call(self.client, "list_notebooks")).structured_content["notebooks"]
        return found

    async def plant(self, code: str) -> None:
        """Have a cell do it. Where a sandbox stops that already, there is less to ask for."""
        await call(self.client, "execute", code=f"outside, data = {str(self.outside)!r}, {str(self.data)!r}\n{code}")

    async def ask(self, path: str) -> list[str]:
        """All that a client is told who asks for a path in every way, none of which may work."""
        answers = [await call(self.client, "read_file", path=path)]
        answers += [
            await call(self.client, "write_file", path=path, text="overwritten", append=append) for append in (0, 1)
        ]
        assert all(each.is_error for each in answers), [text(each) for each in answers]
        for folder in (path, os.path.dirname(path)):
            listed = await call(self.client, "list_files", path=folder)
            assert listed.is_error or "secret" not in text(listed)
        return [*map(text, answers), *await self.read(f"notebook://main/files/{path}", f"notebook://files/{path}")]

    async def read(self, *addresses: str) -> list[str]:
        """What is said about addresses that may not be readable."""
        said = []
        for address in addresses:
            with pytest.raises(Exception) as refused:
                await self.client.read_resource(address)
            said.append(str(refused.value))
        return said

    def is_untouched(self, said: list[str]) -> None:
        assert SECRET not in "\n".join(said)
        assert os.listdir(self.outside) == ["secret"] and (self.outside / "secret").read_text() == SECRET


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Attacked]:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text(SECRET)
    data = tmp_path_factory.mktemp("server") / "data"
    async with stdio_client(data, toolsets="all", preload="", snapshot_interval=0) as client:
        yield Attacked(client=client, outside=outside, data=data)


@pytest.fixture
async def attacked(server: Attacked) -> Attacked:
    """With an empty workspace."""
    await server.plant(
        "import os, shutil\nfor each in os.scandir():\n"
        "    shutil.rmtree(each) if each.is_dir(follow_symlinks=False) else os.remove(each)"
    )
    return server


PLANTED = {
    "a link to a file": ("os.symlink(f'{outside}/secret', 'it')", "it"),
    "a link to a folder": ("os.symlink(outside, 'it')", "it/secret"),
    "a link upwards": ("os.symlink(os.path.relpath(outside), 'it')", "it/secret"),
    "a link to a link": ("os.symlink('two', 'it'); os.symlink(f'{outside}/secret', 'two')", "it"),
    "a link in a folder": ("os.makedirs('a/b'); os.symlink(outside, 'a/b/c')", "a/b/c/secret"),
    "a link to where nothing is yet": ("os.symlink(f'{outside}/new', 'it')", "it"),
    "a link to where a folder would be made": ("os.symlink(f'{outside}/new', 'it')", "it/file"),
    "a link to itself": ("os.symlink('it', 'it')", "it"),
    "a link to the server's root": ("os.symlink('/proc/self/root', 'it')", "it/etc/passwd"),
    "a link to the server's working folder": ("os.symlink('/proc/self/cwd', 'it')", "it/README.md"),
    "a link to the server's environment": ("os.symlink('/proc/self/environ', 'it')", "it"),
    "a link to the server's memory": ("os.symlink('/proc/self/mem', 'it')", "it"),
    "a link to the server's files": ("os.symlink('/proc/self/fd', 'it')", "it/0"),
    "a link to its own supervisor's files": ("os.symlink(f'/proc/{os.getppid()}/fd', 'it')", "it/0"),
    "a pipe without a writer": ("os.mkfifo('it')", "it"),
    "a socket": ("import socket; s = socket.socket(socket.AF_UNIX); s.bind('it'); s.listen()", "it"),
    "a folder": ("os.mkdir('it')", "it"),
    "a pipe as a folder": ("os.mkfifo('it')", "it/x"),
}


@pytest.mark.parametrize("trick", PLANTED)
async def test_what_a_cell_plants_leads_nowhere(attacked: Attacked, trick: str) -> None:
    code, path = PLANTED[trick]
    await attacked.plant(f"import os; {code}")
    assert (await call(attacked.client, "list_files")).structured_content["files"], "nothing was planted"
    attacked.is_untouched(await attacked.ask(path))


@pytest.mark.parametrize("target", ["outside", "quire.db", "snapshots/key", "a device"])
async def test_what_no_cell_can_plant_behind_its_walls_would_lead_nowhere_either(
    attacked: Attacked, target: str
) -> None:
    file = attacked.outside / "secret" if target == "outside" else attacked.data / target
    it = await attacked.workspace() / "it"
    if target == "a device":
        if os.geteuid() != 0:
            pytest.skip("only root makes devices")
        os.mknod(it, 0o20666, os.makedev(1, 5))
        attacked.is_untouched(await attacked.ask("it"))
        return
    before = file.read_bytes()[:32]
    it.hardlink_to(file)
    attacked.is_untouched(await attacked.ask("it"))
    assert file.read_bytes()[:32] == before
    it.unlink()


UP = "../" * 20
MADE_UP = [
    "..",
    "../",
    "../../quire.db",
    f"{UP}etc/passwd",
    f"a/{UP}etc/passwd",
    "./../../../etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "/proc/self/environ",
    "/proc/self/root/etc/passwd",
    "/dev/zero",
    "~/.ssh/id_rsa",
    "file:///etc/passwd",
    "..\\..\\etc\\passwd",
    "x\x00/etc/passwd",
    "n" * 5_000,
    "/".join(["n"] * 3_000),
    "\x1b]0;title\x07",
]
ADDRESSES = [
    "notebook://main/files/%2e%2e/%2e%2e/quire.db",
    "notebook://main/files/..%2f..%2fquire.db",
    "notebook://main/files/%2fetc%2fpasswd",
    "notebook://main/files//etc/passwd",
    "notebook://main/files/%00",
    "notebook://main/files/x%00/../../../quire.db",
    "notebook://main/files/%252e%252e/quire.db",
    "notebook://files/..%2f..%2fquire.db",
    "notebook://..%2f..%2fmain/files/quire.db",
    "notebook://%2e%2e/files/quire.db",
    "notebook://main/files/%ff%fe",
    "notebook://main/files/%ed%b3%bf",
    "notebook://main/files/",
]


@pytest.mark.parametrize("path", MADE_UP, ids=lambda path: ascii(path[:30]))
async def test_what_a_client_makes_up_leads_nowhere(attacked: Attacked, path: str) -> None:
    read = await call(attacked.client, "read_file", path=path)
    listed = await call(attacked.client, "list_files", path=path)
    assert read.is_error and listed.is_error
    assert all(line.isprintable() for answer in (read, listed) for line in text(answer).splitlines())
    assert len(text(read)) < 1_000
    if path not in ("~/.ssh/id_rsa", "file:///etc/passwd", "..\\..\\etc\\passwd", "\x1b]0;title\x07"):  # names like any
        wrote = await call(attacked.client, "write_file", path=path, text="x")
        assert wrote.is_error, text(wrote)
    else:
        assert not (await call(attacked.client, "write_file", path=path, text="x")).is_error
        assert (await call(attacked.client, "list_files")).structured_content["files"]  # in the workspace
    attacked.is_untouched([text(read), text(listed)])


async def test_addresses_a_client_makes_up_lead_nowhere(attacked: Attacked) -> None:
    attacked.is_untouched(await attacked.read(*ADDRESSES))


async def test_names_that_a_line_or_a_terminal_would_obey_are_listed_escaped(attacked: Attacked) -> None:
    names = ["a\nfake      9  2026-01-01T00:00:00Z  b", "\x1b[2J\x1b[31mred", "\u202egnp.exe", "\r", "tab\there", " "]
    await attacked.plant(f"import os\nfor name in {names!r}: open(name, 'w').close()\nopen(b'\\xff\\xfe', 'w').close()")
    listed = await call(attacked.client, "list_files")
    lines = text(listed).splitlines()
    assert all(line.isprintable() for line in lines), lines
    assert len(lines) == len(names) + 1
    assert any("b'\\xff\\xfe'" in line for line in lines)
    known = {each["name"] for each in listed.structured_content["files"]}
    assert known == {*names, "b'\\xff\\xfe'"}
    json.dumps(listed.structured_content, ensure_ascii=False).encode("utf-8")
    for name in names:  # those that are text can be reached all the same
        answer = await call(attacked.client, "read_file", path=name)
        assert not answer.is_error and text(answer).strip().isprintable(), text(answer)


SWAP = """
import ctypes, os, threading
os.mkdir('f'); open('f/secret', 'w').write('mine'); os.symlink(outside, 'l')
swap = ctypes.CDLL(None).renameat2
def swapping():
    while not os.path.exists('stop'):
        swap(-100, b'f', -100, b'l', 2)
threading.Thread(target=swapping, daemon=True).start()
"""


async def test_a_folder_a_thread_exchanges_for_a_link_never_leads_out(attacked: Attacked) -> None:
    await attacked.plant(SWAP)
    reached = refused = 0
    said = []
    for _ in range(400):
        read = await call(attacked.client, "read_file", path="f/secret")
        wrote = await call(attacked.client, "write_file", path="f/secret", text="mine")
        said += [text(read), text(wrote), text(await call(attacked.client, "list_files", path="f"))]
        reached, refused = reached + (not read.is_error), refused + read.is_error
        if min(reached, refused) > 10:
            break
    await call(attacked.client, "write_file", path="stop", text="")
    assert reached and refused
    attacked.is_untouched(said)


async def test_a_document_is_not_written_or_read_through_a_link_put_there_meanwhile(attacked: Attacked) -> None:
    await attacked.plant(SWAP)
    refused = 0
    for _ in range(60):
        wrote = await call(attacked.client, "export_notebook_as_ipynb", path="f/x.ipynb")
        made = await call(attacked.client, "export_notebook_as_ipynb", path="f/new/x.py")
        read = await call(attacked.client, "import_ipynb", path_or_json="f/secret")
        assert read.is_error
        refused += wrote.is_error + made.is_error
    await call(attacked.client, "write_file", path="stop", text="")
    assert refused
    attacked.is_untouched([text(read)])


async def test_a_mirror_is_not_written_through_a_link_put_there_meanwhile(attacked: Attacked) -> None:
    await call(attacked.client, "create_notebook", name="mirrored", mirror="f/x.py", use=False)
    swap = SWAP.replace("os.mkdir('f');", "")
    await call(attacked.client, "execute", code=f"outside = {str(attacked.outside)!r}\n{swap}", notebook="mirrored")
    for number in range(40):
        await call(attacked.client, "add_cell", code=f"{number}", execute=False, notebook="mirrored")
        await anyio.sleep(0.1)
    await call(attacked.client, "write_file", path="stop", text="", notebook="mirrored")
    attacked.is_untouched([])


REPLACE = """
import os, threading
def replacing():
    while not os.path.exists('stop'):
        for name in os.listdir():
            if name.endswith('.quire-new'):
                try:
                    os.remove(name); os.symlink(f'{outside}/secret', name)
                except OSError:
                    pass
threading.Thread(target=replacing, daemon=True).start()
"""


async def test_a_half_written_file_exchanged_for_a_link_is_not_written_through(attacked: Attacked) -> None:
    await attacked.plant(REPLACE)
    for number in range(100):
        await call(attacked.client, "write_file", path="x", text=f"{number}" * 50_000)
    await call(attacked.client, "write_file", path="stop", text="")
    attacked.is_untouched([text(await call(attacked.client, "list_files"))])


async def test_a_refusal_does_not_say_whether_there_is_something_outside(attacked: Attacked) -> None:
    answers = {
        re.sub("there|nowhere", "X", text(await call(attacked.client, "read_file", path=f"{attacked.outside}/{name}")))
        for name in ("there", "nowhere")
    }
    await attacked.plant("import os; os.symlink(f'{outside}/secret', 'there'); os.symlink(f'{outside}/no', 'nowhere')")
    linked = {
        re.sub("there|nowhere", "X", text(await call(attacked.client, "read_file", path=name)))
        for name in ("there", "nowhere")
    }
    assert len(answers) == len(linked) == 1


CROSSING = """
import sys

import anyio

from quire.core.errors import InvalidRequest
from quire.safe_open.by_descriptor import FdWalker
from quire.stores.folders import DiskFolders

home = sys.argv[1]


async def main():
    for walker in (FdWalker(), FdWalker(openat2=False)):
        disk = DiskFolders(walker)
        for attempt in (
            disk.read(home, ("m", "x"), 0, 9),
            disk.list(home, ("m",), 9),
            disk.write(home, ("m", "x"), b"", append=False),
            disk.write(home, ("m", "new", "x"), b"", append=False),
            disk.read(home, ("f",), 0, 9),
            disk.write(home, ("f",), b"", append=True),
        ):
            try:
                await attempt
            except InvalidRequest as refused:
                assert "another file system" in str(refused), refused
            else:
                raise AssertionError(attempt)
        assert (await disk.measure(home)).bytes < 600_000  # what is mounted over a file is seen as that file
    print("none was crossed")


anyio.run(main)
"""


def test_a_mount_inside_is_not_crossed(namespaces: None, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "f").touch()
    mount = 'mount -t tmpfs quire "$0/m" && head -c 500000 /dev/zero > "$0/m/x" && mount --bind "$0/m/x" "$0/f"'
    command = with_mount(mount, tmp_path, sys.executable, "-c", CROSSING, str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert done.stdout == "none was crossed\n", done.stderr
