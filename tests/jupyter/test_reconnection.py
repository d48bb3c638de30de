"""A Jupyter server that is cut off, restarted, killed or silent: no edit is lost or doubled, and no call hangs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from quire.clients.jupyter.client import JupyterClient, remote_client
from quire.clients.jupyter.ports import JupyterError, KernelDied, Message, Missing, Unreachable
from tests.support.jupyter.places import printed, run, seen, sources, until
from tests.support.jupyter.proxies import Proxy, proxy, saying
from tests.support.jupyter.servers import DEADLINE, JupyterServer, free_port, jupyter
from tests.support.notebooks import waits_for


@pytest.fixture(scope="module")
def breakable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    with jupyter(tmp_path_factory.mktemp("breakable")) as started:
        yield started


@pytest.fixture
def server(breakable: JupyterServer) -> JupyterServer:
    """A running server that the test may kill."""
    if breakable.process is None:
        breakable.start()
    return breakable


@asynccontextmanager
async def behind(server: JupyterServer, timeout: float = DEADLINE) -> AsyncIterator[tuple[JupyterClient, Proxy]]:
    """The server through a proxy that can be cut."""
    async with proxy(server.port) as between:
        there = remote_client(f"http://127.0.0.1:{between.port}{server.base_url}", server.token, timeout=timeout)
        try:
            yield there, between
        finally:
            between.stuck = False
            await there.close()


@asynccontextmanager
async def reached(server: JupyterServer, timeout: float = DEADLINE) -> AsyncIterator[JupyterClient]:
    there = remote_client(server.url, server.token, timeout=timeout)
    try:
        yield there
    finally:
        await there.close()


async def test_document_is_synchronized_after_a_lost_connection(collaborating: JupyterServer) -> None:
    path = collaborating.notebook("a", "b")
    async with behind(collaborating) as (ours, between), reached(collaborating) as theirs:
        document, other = await ours.documents.open(path), await theirs.documents.open(path)
        for turn in range(3):
            between.closed = True
            between.cut()
            await other.change("cell-1", source=f"theirs {turn}")
            edit = asyncio.create_task(document.change("cell-0", source=f"ours {turn}"))
            between.closed = False
            await edit
            wanted = [f"ours {turn}", f"theirs {turn}"]
            await seen(document, lambda wanted=wanted: sources(document) == wanted)
            await seen(other, lambda wanted=wanted: sources(other) == wanted)


async def test_edit_during_a_lost_connection_arrives_once(collaborating: JupyterServer) -> None:
    path = collaborating.notebook("a")
    async with behind(collaborating) as (ours, between), reached(collaborating) as theirs:
        document, other = await ours.documents.open(path), await theirs.documents.open(path)
        between.stuck = True
        await document.insert(1, [{"cell_type": "code", "source": "new", "id": "new"}])
        between.cut()
        between.stuck = False
        await seen(other, lambda: len(other.cells()) == 2)
        await document.save()
        assert sources(document) == sources(other) == ["a", "new"]
        assert [cell["id"] for cell in collaborating.saved(path)["cells"]] == ["cell-0", "new"]


async def test_document_is_unchanged_after_a_server_restart(server: JupyterServer) -> None:
    path = server.notebook("a", "b")
    async with reached(server) as ours:
        document = await ours.documents.open(path)
        await document.change("cell-0", source="ours")
        await document.save()
        await document.insert(2, [{"cell_type": "code", "source": "unsaved", "id": "unsaved"}])
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await document.change("cell-1", source="after")
        assert sources(document) == ["ours", "after", "unsaved"]
        assert [cell["id"] for cell in document.cells()] == ["cell-0", "cell-1", "unsaved"]
        await document.save()
        assert [cell["id"] for cell in server.saved(path)["cells"]] == ["cell-0", "cell-1", "unsaved"]
        async with reached(server) as theirs:
            assert sources(await theirs.documents.open(path)) == ["ours", "after", "unsaved"]


async def test_room_recreated_from_another_file_does_not_double_cells(server: JupyterServer) -> None:
    """Its history is forgotten and the file is another: what others wrote stands, and what only we had is kept."""
    path = server.notebook("a", "b", "c")
    async with reached(server) as ours:
        document = await ours.documents.open(path)
        await document.change("cell-0", source="saved by us")
        await document.save()
        await document.change("cell-0", source="not saved")
        await document.change("cell-1", source="not saved, and theirs in the file")
        await document.insert(3, [{"cell_type": "code", "source": "new", "id": "new"}])
        await asyncio.to_thread(server.kill)
        forget_history(server)
        server.notebook("saved by us", "theirs", "c", name=path)
        await asyncio.to_thread(server.start)
        await document.change("cell-2", source="after")
        assert [(cell["id"], cell["source"]) for cell in document.cells()] == [
            ("cell-0", "not saved"),
            ("cell-1", "theirs"),
            ("cell-2", "after"),
            ("new", "new"),
        ]
        await document.save()
        assert len(server.saved(path)["cells"]) == 4


def forget_history(server: JupyterServer) -> None:
    for each in server.folder.rglob("*ystore*"):
        each.unlink()
    shutil.rmtree(server.root / ".jupyter", ignore_errors=True)


async def test_edit_without_a_server_times_out_and_changes_nothing(
    server: JupyterServer,
) -> None:
    path = server.notebook("a")
    async with reached(server, timeout=5) as ours:
        document = await ours.documents.open(path)
        await asyncio.to_thread(server.kill)
        await until(lambda: document._replica._connection is None)  # type: ignore[attr-defined]
        with pytest.raises(Unreachable, match="could not be made again within 5 s"):
            await document.change("cell-0", source="b")
        assert sources(document) == ["a"]
        with pytest.raises(Unreachable, match="cannot be reached"):
            await ours.documents.open(path)
        with pytest.raises(Unreachable, match="Check that it runs"):
            await ours.kernels.list_running()


async def test_a_document_whose_file_is_gone_after_a_restart_says_so(server: JupyterServer) -> None:
    path = server.notebook("a")
    async with reached(server) as ours:
        document = await ours.documents.open(path)
        await asyncio.to_thread(server.kill)
        forget_history(server)
        (server.root / path).unlink()
        await asyncio.to_thread(server.start)
        with pytest.raises(JupyterError, match=path):
            await document.change("cell-0", source="b")


async def test_run_continues_after_its_websocket_is_lost(collaborating: JupyterServer) -> None:
    async with behind(collaborating) as (ours, between):
        info = await ours.kernels.start()
        kernel = await ours.kernels.connect(info.id)
        execution = await kernel.execute("print('first', flush=True)\nprint(input())", allow_stdin=True)
        said: list[Message] = []
        while {"input_request", "stream"} - {each.kind for each in said}:  # on two channels: either may be first
            said.append(await asyncio.wait_for(execution.next_message(), DEADLINE))
        between.cut()
        await execution.reply("answered")
        while said[-1].kind != "execute_reply":
            said.append(await asyncio.wait_for(execution.next_message(), DEADLINE))
        assert printed(said) == "first\nanswered\n"
        assert printed(await run(kernel, "print('next')")) == "next\n"
        await ours.kernels.shut_down(info.id)


async def test_kernel_messages_during_a_lost_connection_arrive_afterwards(collaborating: JupyterServer) -> None:
    async with behind(collaborating) as (ours, between):
        info = await ours.kernels.start()
        kernel = await ours.kernels.connect(info.id)
        gate, sign = (collaborating.root / f"{info.id}.{kind}" for kind in ("gate", "sign"))
        code = f"print('one', flush=True)\n{waits_for(gate)}print('two', flush=True)\nopen({str(sign)!r}, 'w').close()"
        execution = await kernel.execute(code)
        while (await asyncio.wait_for(execution.next_message(), DEADLINE)).kind != "stream":
            pass
        between.closed = True
        between.cut()
        # only then does the Jupyter server keep what the kernel says
        await until(lambda: collaborating.call("GET", f"api/kernels/{info.id}")["connections"] == 0)
        gate.touch()
        await until(sign.exists)
        between.closed = False
        said = []
        while not said or said[-1].kind != "execute_reply":
            said.append(await asyncio.wait_for(execution.next_message(), DEADLINE))
        assert printed(said) == "two\n"
        await ours.kernels.shut_down(info.id)


async def test_killed_server_ends_the_run(server: JupyterServer) -> None:
    async with reached(server) as ours:
        info = await ours.kernels.start()
        kernel = await ours.kernels.connect(info.id)
        execution = await kernel.execute("import time; time.sleep(600)")
        while (await asyncio.wait_for(execution.next_message(), DEADLINE)).kind != "execute_input":
            pass
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        with pytest.raises(KernelDied, match="has none of that id"):
            await asyncio.wait_for(execution.next_message(), DEADLINE)
        assert not kernel.alive
        with pytest.raises(KernelDied):
            await kernel.execute("1")


async def test_wrong_url_or_token_is_an_error_that_says_what_to_do(collaborating: JupyterServer) -> None:
    nowhere = remote_client(f"http://127.0.0.1:{free_port()}/", "x")
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1.*cannot be reached.*Check that it runs"):
        await nowhere.check()
    await nowhere.close()
    for token, why in (("wrong", "the token is wrong"), ("", "it wants a token")):
        stranger = remote_client(collaborating.url, token)
        for call in (stranger.check, stranger.kernels.list_running, stranger.documents.list_folder):
            with pytest.raises(Unreachable, match=why):
                await call()
        await stranger.close()
    astray = remote_client(collaborating.url + "elsewhere/", collaborating.token)
    with pytest.raises(Unreachable, match="no Jupyter server at"):
        await astray.check()
    await astray.close()
    for url in ("", "localhost:8888", "ftp://x/", "http://", "http://x:port/"):
        with pytest.raises(JupyterError, match="no address"):
            remote_client(url)


async def test_url_copied_from_a_browser_is_accepted(below_a_base: JupyterServer) -> None:
    there = remote_client(below_a_base.url + "lab?token=x", below_a_base.token)
    assert there.name == below_a_base.url
    assert (await there.check())["version"]
    document = await there.documents.open(below_a_base.notebook("a"))
    assert document.live and sources(document) == ["a"]
    await there.close()


async def test_server_that_never_answers_times_out() -> None:
    async with saying(b"") as url:
        there = remote_client(url, "x", timeout=0.5)
        for call in (there.check, lambda: there.documents.open("a.ipynb"), lambda: there.kernels.connect("abc")):
            with pytest.raises(Unreachable, match=r"did not answer within 0\.5 s"):
                await call()
        await there.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "not a Jupyter server"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "not what"),
        (b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n", "does not let us in"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}", "refused"),
        (b"\x00\xff\x00 nonsense\r\n\r\n", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", "cannot be reached"),
    ],
)
async def test_other_http_server_is_reported(answer: bytes, why: str) -> None:
    async with saying(answer) as url:
        there = remote_client(url, "x", timeout=5)
        for call in (lambda: there.documents.open("a.ipynb"), there.kernels.list_running, there.kernels.list_specs):
            with pytest.raises(JupyterError, match=why):
                await call()
        await there.close()


async def test_server_that_stops_answering_is_an_error_after_the_timeout(collaborating: JupyterServer) -> None:
    path = collaborating.notebook("a")
    async with behind(collaborating, timeout=3) as (ours, between):
        document = await ours.documents.open(path)
        between.stuck = True
        with pytest.raises(Unreachable, match="3 s"):
            await document.save()
        with pytest.raises(Unreachable, match="did not answer within 3 s"):
            await ours.kernels.list_running()


async def test_missing_kernel_or_document_is_not_reported_as_unreachable(collaborating: JupyterServer) -> None:
    async with reached(collaborating) as ours:
        with pytest.raises(Missing, match="no kernel"):
            await ours.kernels.connect("00000000-0000-0000-0000-000000000000")
        with pytest.raises(Missing, match=r"'gone\.ipynb' was not found"):
            await ours.documents.open("gone.ipynb")
