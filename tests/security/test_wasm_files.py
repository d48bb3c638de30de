"""Files, tried from code in WebAssembly: nothing outside its folder and the mounts, by no name and no detour."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import anyio
import pytest

import quire
from tests.support.security.guests import RAW, SECRET, TRY, Book, Outside
from tests.support.servers import keywords
from tests.support.wasm.assets import assets_dir

REFUSED = ("FileNotFoundError", "PermissionError", "OSError", "AttributeError", "NotADirectoryError")
AWAY = {  # each to be read, in the words of both
    "above": "../../../secret",
    "above, by a detour": "inner/../../../../secret",
    "the whole path": "{outside}/secret",
    "the data of the server": "../../quire.db",
    "passwords": "/etc/passwd",
    "passwords, by what is there": "/workspace/../../../../etc/passwd",
    "passwords, by the mount": "{mount}/../../../../../../etc/passwd",
    "the environment of the process": "/proc/self/environ",
    "a process": "/proc/1/cmdline",
    "the memory of the process": "/proc/self/mem",
    "a device": "/dev/zero",
    "the workspace, by the descriptors of the process": "/proc/self/fd/3",
}


SWAP = (
    """
import os
for n in range(300):
    os.mkdir('d')
    with open('d/secret', 'w') as file: file.write('inside')
    os.remove('d/secret')
    os.rmdir('d')
    os.symlink('..', 'd')
    os.remove('d')
""",
    """
for (let n = 0; n < 300; n++) {
  files.mkdir('d'); files.write('d/secret', 'inside'); files.remove('d/secret'); files.remove('d');
}
""",
)
LOOK = (
    """
seen = set()
for n in range(2000):
    for way in ('d/secret', 'd/../../secret'):
        try: seen.add(open(way).read())
        except OSError: pass
sorted(seen)
""",
    """
let seen = {};
for (let n = 0; n < 2000; n++)
  for (const way of ['d/secret', 'd/../../secret']) try { seen[files.read(way)] = 1 } catch {}
seen
""",
)


@pytest.mark.parametrize("away", AWAY)
async def test_no_name_leads_out(attacker: Book, neighbour: Book, outside: Outside, away: str) -> None:
    (attacker.workspace / "inner").mkdir()
    path = AWAY[away].format(outside=outside.folder, mount=outside.mount)
    module = path if path.startswith("/") else f"./{path}"
    for python, javascript in (
        (f"open({path!r}, 'rb').read(100)", f"files.read({path!r})"),
        (f"__import__('os').listdir({path!r})", f"files.list({path!r})"),
        (f"open({path!r}, 'a')", f"files.write({path!r}, 'x')"),
        (f"__import__('os').remove({path!r})", f"files.remove({path!r})"),
        (f"__import__('os').mkdir({path!r} + '-new')", f"files.mkdir({path!r} + '-new')"),
        (f"__import__('runpy').run_path({path!r})", f"await import({module!r})"),
    ):
        tried = await attacker.run(python, javascript)
        said = await tried.text()
        assert tried.state == "ERROR" and any(word in said for word in (*REFUSED, "outside of the workspace")), said
    assert outside.secret.read_text() == SECRET and not (outside.folder / "secret-new").exists()
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


async def test_a_link_that_leads_out_is_not_followed(attacker: Book, neighbour: Book, outside: Outside) -> None:
    (neighbour.workspace / "theirs").write_text(SECRET)
    links = {"file": outside.secret, "folder": outside.folder, "other": neighbour.workspace, "up": Path("..")}
    for name, target in links.items():
        (attacker.workspace / name).symlink_to(target)
    for path in ("file", "folder/secret", "other/theirs", "up/../../secret"):
        tried = await attacker.run(f"open({path!r}).read()", f"files.read({path!r})")
        assert tried.state == "ERROR" and SECRET not in await tried.text()
    for path in ("file", "folder/new", "other/new", "up/new"):
        assert (await attacker.run(f"open({path!r}, 'w').write('x')", f"files.write({path!r}, 'x')")).state == "ERROR"
    for path in ("folder", "other", "up"):
        assert (await attacker.run(f"__import__('os').listdir({path!r})", f"files.list({path!r})")).state == "ERROR"
    assert outside.secret.read_text() == SECRET and not (neighbour.workspace / "new").exists()
    await attacker.is_as_before()


async def test_a_link_made_inside_leads_nowhere_else(attacker: Book, outside: Outside) -> None:
    if not attacker.is_python:
        assert (
            await attacker.text("", "Object.keys(files).sort().join()")
            == "'exists,list,mkdir,read,readBytes,remove,write'"
        )
        return
    targets = (str(outside.secret), "../../../secret", "/etc/passwd", "..", "/", str(outside.mount / ".." / "secret"))
    for target in targets:
        made = await attacker.text(
            f"{TRY}\ntried(lambda: os.symlink({target!r}, 'way')), tried(lambda: open('way').read()), "
            "tried(lambda: os.listdir('way')), tried(lambda: open('way/secret').read())"
        )
        assert "done: '" not in made and "done: [" not in made and SECRET not in made
        (attacker.workspace / "way").unlink(missing_ok=True)
    await attacker.is_as_before()


async def test_hard_links_and_renames_reach_nothing_else(attacker: Book, neighbour: Book, outside: Outside) -> None:
    if not attacker.is_python:
        os.link(outside.secret, attacker.workspace / "name")
        for code in ("files.read('name')", "files.write('name', 'x')"):
            assert "hard links" in await (await attacker.run("", code)).text()
        (attacker.workspace / "name").unlink()
    else:
        steps = [
            f"os.link({str(outside.secret)!r}, 'name')",
            "os.link('../../../secret', 'name')",
            "os.rename('f', '../f')",
            f"os.rename('f', {str(outside.folder / 'f')!r})",
            "os.replace('../../../secret', 'name')",
            f"os.rename({str(outside.kept)!r}, 'name')",
            f"os.link({str(outside.kept)!r}, 'name')",
            f"os.rename('f', {str(outside.mount / 'f')!r})",
            f"os.link('f', {str(outside.mount / 'f')!r})",
        ]
        for step in steps:
            said = await attacker.text(f"{TRY}\nopen('f', 'w').close()\ntried(lambda: {step})")
            assert said.strip("'") in REFUSED, (step, said)
        assert not (attacker.workspace / "name").exists() and os.listdir(outside.mount) == ["kept"]
    assert outside.secret.read_text() == SECRET == outside.kept.read_text()
    await neighbour.was_not_disturbed()


async def test_a_mount_is_read_and_not_written(attacker: Book, outside: Outside) -> None:
    path, before = str(outside.kept), outside.kept.stat()
    assert SECRET in await attacker.text(f"open({path!r}).read()", f"files.read({path!r})")
    if attacker.is_python:
        steps = [f"open({path!r}, {mode!r})" for mode in ("w", "a", "r+", "x")]
        steps += [
            f"os.open({path!r}, os.O_RDONLY | os.O_TRUNC)",
            f"os.truncate({path!r}, 0)",
            f"os.utime({path!r}, (1, 1))",
            f"os.remove({path!r})",
            f"os.mkdir({path!r} + '-new')",
            f"os.rename({path!r}, {path!r} + '-new')",
            f"os.link({path!r}, {path!r} + '-new')",
            f"os.symlink('kept', {path!r} + '-new')",
            f"open({path!r} + '-new', 'w')",
            f"os.ftruncate(os.open({path!r}, os.O_RDONLY), 0)",
            f"os.write(os.open({path!r}, os.O_RDONLY), b'x')",
            f"os.utime(os.open({path!r}, os.O_RDONLY), (1, 1))",
            f"os.rmdir({str(outside.mount)!r})",
        ]
        await attacker.run(f"import os\nos.chmod({path!r}, 0o777)")  # does nothing, and says nothing
        for step in steps:
            said = await attacker.text(f"{TRY}\ntried(lambda: {step})")
            assert said.startswith("'") and "done" not in said, (step, said)
    else:
        for step in (
            f"write({path!r}, 'x')",
            f"write({path!r} + '-new', 'x')",
            f"remove({path!r})",
            f"mkdir({path!r} + '-new')",
        ):
            assert "read-only" in await (await attacker.run("", f"files.{step}")).text()
    after = outside.kept.stat()
    assert outside.kept.read_text() == SECRET and os.listdir(outside.mount) == ["kept"]
    assert (after.st_mtime_ns, after.st_mode, after.st_nlink) == (before.st_mtime_ns, before.st_mode, before.st_nlink)


async def test_pipe_or_socket_in_the_workspace_blocks_no_other(attacker: Book, neighbour: Book) -> None:
    os.mkfifo(attacker.workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        folder = os.open(attacker.workspace, os.O_PATH)
        sock.bind(f"/proc/self/fd/{folder}/sock")  # short, wherever that lies
        os.close(folder)
        for name in ("pipe", "sock"):
            for python, javascript in (
                (f"open({name!r}).read()", f"files.read({name!r})"),
                (f"open({name!r}, 'w')", f"files.write({name!r}, 'x')"),
                (f"__import__('os').open({name!r}, __import__('os').O_RDWR)", f"await import('./{name}')"),
            ):
                assert (await attacker.run(python, javascript)).state == "ERROR"
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


async def test_a_pipe_that_is_opened_all_the_same_costs_its_run_and_no_state(attacker: Book, neighbour: Book) -> None:
    """Nothing in the guest can be trusted to look: the process is ended, and every notebook in it is put back."""
    os.mkfifo(attacker.workspace / "pipe")
    blind = "import os\ndef unseen(*given, **named): raise OSError\nos.stat = unseen\n"
    held = await attacker.run(f"{blind}open('pipe').read()", "files.read('pipe')", timeout=1)
    assert held.state == ("TIMEOUT" if attacker.is_python else "ERROR")  # JavaScript has no files but the host's
    await attacker.is_as_before()
    await neighbour.is_as_before()
    await attacker.notebook.reset()  # and its host, which it has for itself now


async def test_a_disk_is_not_filled(attacker: Book, neighbour: Book) -> None:
    filled = await attacker.run(
        "n = 0\nwhile True:\n    open(f'{n}', 'wb').write(b'x' * 1_000_000); n += 1; __import__('time').sleep(0.01)",
        "for (let n = 0; ; n++) { files.write(`${n}`, 'x'.repeat(1000000)); await new Promise(r => setTimeout(r, 9)) }",
    )
    assert filled.state == "INTERRUPTED" and "workspace_bytes" in await filled.text(), await filled.text()
    for file in attacker.workspace.iterdir():
        file.unlink()
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


async def test_a_workspace_that_was_swapped_for_a_link_is_not_entered(attacker: Book, outside: Outside) -> None:
    (attacker.workspace / "mine").write_text("mine")
    aside = attacker.workspace.with_name("aside")
    attacker.workspace.rename(aside)
    attacker.workspace.symlink_to(outside.folder)
    try:
        for path in ("secret", "mount/kept"):
            tried = await attacker.run(f"open({path!r}).read()", f"files.read({path!r})")
            assert tried.state == "ERROR" and SECRET not in await tried.text()
        await attacker.run("open('new', 'w').write('x')", "files.write('new', 'x')")
        with pytest.raises(quire.core.errors.QuireError, match="is a link"):
            await attacker.notebook.rollback("before")
    finally:
        attacker.workspace.unlink()
        aside.rename(attacker.workspace)
    assert not (outside.folder / "new").exists()
    assert "mine" in await attacker.text("open('mine').read()", "files.read('mine')")


async def test_two_that_race_in_one_folder_see_whole_files(outside: Outside, runtime: str, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    settings = {"preload": "", "spare_kernels": 0, "workspace": tmp_path / "one"}
    settings |= {"assets_dir": assets_dir(), "wasm_python": "plain"}
    async with quire.open(tmp_path / "data", **keywords(settings)) as both:
        one = Book(notebook=await both.create("one", runtime=runtime), workspace=tmp_path / "one", runtime=runtime)
        await one.run("kept = 41")
        await one.notebook.keep("before")
        other = Book(notebook=await one.notebook.branch("other"), workspace=tmp_path / "one", runtime=runtime)
        (tmp_path / "one" / "secret").write_text("inside")
        (tmp_path / "secret").write_text(SECRET)
        looked = ""

        async def watch() -> None:
            nonlocal looked
            looked = await other.text(*LOOK)

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await one.text(*SWAP)
        assert SECRET not in looked
        await one.is_as_before()
        await other.is_as_before()


@pytest.mark.parametrize("many", [600, 30_000])
async def test_open_files_are_few_even_where_the_guest_counts_wrong(attacker: Book, neighbour: Book, many: int) -> None:
    if not attacker.is_python:
        await attacker.text("", f"files.write('f', 'x'); for (let n = 0; n < {many}; n++) files.read('f')")
        await neighbour.was_not_disturbed()
        return
    greedy = f"import os\nopen('f', 'w').close()\nheld = [os.open('f', os.O_RDONLY) for n in range({many})]"
    assert "wasm.open_files" in await (await attacker.run(greedy)).text()
    await attacker.is_as_before()
    ended = await attacker.run(f"{RAW}kernel._files.most = 0\n{greedy}")
    assert ended.state == "CRASHED" and "wasm.open_files" in await ended.text(), await ended.text()
    assert await neighbour.text("open('g', 'w').write('here')") == "4"
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


async def test_a_file_of_a_terabyte_takes_nothing(attacker: Book, neighbour: Book) -> None:
    if attacker.is_python:
        await attacker.run("with open('sparse', 'wb') as file: file.truncate(1 << 40)")
    else:
        assert "larger than" in await (await attacker.run("", "files.write('sparse', 'x'.repeat(40000000))")).text()
    held = sum(file.stat().st_blocks * 512 for file in attacker.workspace.iterdir())
    assert held < 30_000_000
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()
