"""The network of a walled notebook: nothing unless granted, through the proxy alone, and what is refused is named."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from fastmcp import Client

from tests.support.notebooks import Book
from tests.support.security.walled_servers import named, walled
from tests.support.servers import call, text

OPEN = """
import os, socket, urllib.error, urllib.request
for name in ('no_proxy', 'NO_PROXY'):  # which says that 127.0.0.1 is the notebook's own
    os.environ.pop(name, None)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({'http': os.environ['http_proxy']}))
def fetched(url):
    try: return opener.open(url, timeout=20).read().decode()
    except urllib.error.HTTPError as error: return error.code
def raw(host, port):
    try: socket.create_connection((host, port), timeout=10).close()
    except OSError as error: return type(error).__name__
    return 'connected'
"""


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"found {self.path}".encode())

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture(scope="module")
def web() -> Iterator[int]:
    """A server on the machine's own loopback, by its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(scope="module")
def other(web: int) -> Iterator[int]:
    """Another service there, which is never granted."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture(scope="module")
async def granting(user: str, folder: Path, web: int) -> AsyncIterator[Client[Any]]:
    """Of a server that grants that one address, and one where no server is."""
    async with walled(user, folder, network=f"127.0.0.1:{web},nowhere.invalid") as connected:
        yield connected


async def said(book: Book, code: str) -> tuple[Any, str]:
    """What a cell returns, and what else its output says."""
    result = await book.run(OPEN + code)
    assert not result.is_error, text(result)
    return result.structured_content["return_value"], result.structured_content["stderr"]


async def test_with_nothing_granted_nothing_is_reached_and_each_attempt_is_named_once(book: Book, web: int) -> None:
    code = f"[fetched(url) for url in ['http://example.org/'] * 3 + ['http://127.0.0.1:{web}/']]"
    for _ in range(2):  # again in each run
        value, words = await said(book, code)
        assert value == [403] * 4
        lines = [line for line in words.splitlines() if line.startswith("[quire]")]
        assert lines == [
            "[quire] Not connected to example.org:80: this notebook was not granted it (setting sandbox.network).",
            f"[quire] Not connected to 127.0.0.1:{web}: this notebook was not granted it (setting sandbox.network).",
        ]


async def test_sockets_that_go_past_the_proxy_are_told_of_it_once(book: Book, web: int) -> None:
    code = (
        "[raw('192.0.2.1', 80), raw('192.0.2.1', 443), raw('example.org', 80), raw('example.org', 80)], "
        f"raw('127.0.0.1', {web})"
    )
    value, words = await said(book, code)
    assert value == [["OSError", "OSError", "gaierror", "gaierror"], "ConnectionRefusedError"]
    lines = [line for line in words.splitlines() if line.startswith("[quire]")]
    assert [line.split()[1] for line in lines] == ["192.0.2.1", "example.org"]
    assert all("the only way out is the proxy in http_proxy and https_proxy" in line for line in lines)


async def test_what_programs_ask_is_named_too(book: Book) -> None:
    code = (
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', "
        "\"import urllib.request as u\\ntry: u.urlopen('http://example.org/')\\nexcept OSError as e: print(e)\"])"
        ".returncode"
    )
    result = await book.run(code)
    assert result.structured_content["return_value"] == 0
    assert "HTTP Error 403" in result.structured_content["stdout"]
    assert result.structured_content["stderr"].count("Not connected to example.org:80") == 1


async def test_a_run_without_an_attempt_says_nothing(book: Book) -> None:
    assert await said(book, "raw('localhost', 9) and 1") == (1, "")


async def test_many_refusals_are_not_all_told(book: Book) -> None:
    value, words = await said(book, "{fetched(f'http://{n}.example.org/') for n in range(60)} == {403}")
    assert value is True and words.count("Not connected to") == 20


async def test_what_was_granted_is_reached_through_the_proxy_alone(granting: Client[Any], web: int, other: int) -> None:
    book = await named(granting, "granted")
    value, words = await said(book, f"fetched('http://127.0.0.1:{web}/page'), raw('127.0.0.1', {web})")
    assert (value, words) == (["found /page", "ConnectionRefusedError"], "")
    value, words = await said(book, f"fetched('http://127.0.0.1:{other}/')")
    assert value == 403 and f"Not connected to 127.0.0.1:{other}" in words


async def test_a_notebook_s_network_can_be_narrower_and_no_wider(granting: Client[Any], web: int) -> None:
    place = f"127.0.0.1:{web}"
    for network, reached in ([], 403), (["nowhere.invalid"], 403), ([place], "found /"):
        name = f"narrow {network}"
        made = await call(granting, "create_notebook", name=name, network=network)
        assert not made.is_error, text(made)
        value, _ = await said(Book(client=granting, name=name), f"fetched('http://{place}/')")
        assert value == reached
    for wide in (["example.org"], [f"127.0.0.1:{web + 1}"], ["127.0.0.1:*"], ["*"], [place, "*.invalid"]):
        refused = await call(granting, "create_notebook", name="wide", network=wide)
        assert refused.is_error
        assert f"no wider than what was granted here: {place}, nowhere.invalid" in text(refused)
    bad = await call(granting, "create_notebook", name="wide", network=["http://example.org/"])
    assert bad.is_error and "'http://example.org/' is not a host: write example.org" in text(bad)


async def test_a_notebook_keeps_its_network_through_crash_rollback_and_reset(granting: Client[Any], web: int) -> None:
    book = await named(granting, "keeps")
    url = f"http://127.0.0.1:{web}/"
    fetch = "fetched({!r}), fetched('http://example.org/')"
    assert (await said(book, fetch.format(url)))[0] == ["found /", 403]
    await book.protected()
    assert (await book.run("os.abort()")).structured_content["state"] == "CRASHED"
    value, words = await said(book, fetch.format(url))
    assert value == ["found /", 403] and words.count("example.org:80") == 1
    await book.protected()
    await book.run("x = 1")
    undone = await book.ask("rollback", to=2)
    assert not undone.is_error, text(undone)
    value, words = await said(book, fetch.format(url))
    assert value == ["found /", 403] and words.count("example.org:80") == 1
    await book.ask("reset")
    value, words = await said(book, fetch.format(url))
    assert value == ["found /", 403] and words.count("example.org:80") == 1


async def test_a_branch_has_its_origin_s_network_and_outlives_it(granting: Client[Any], web: int) -> None:
    book = await named(granting, "origin")
    url = f"http://127.0.0.1:{web}/"
    assert (await said(book, f"fetched({url!r})"))[0] == "found /"
    await book.protected()
    made = await book.ask("branch_notebook", name="twig", use=False)
    assert not made.is_error, text(made)
    twig = Book(client=granting, name="twig")
    both = f"fetched({url!r}), fetched('http://example.org/')"
    value, words = await said(twig, both)
    assert value == ["found /", 403] and words.count("example.org:80") == 1  # told where it was tried
    assert (await book.run("1")).structured_content["stderr"] == ""
    await book.ask("reset")
    value, words = await said(twig, both)
    assert value == ["found /", 403] and words.count("example.org:80") == 1
    assert (await said(book, both))[0] == ["found /", 403]  # and the origin, in a kernel of its own


async def test_a_grant_that_is_taken_back_is_gone_from_notebooks_that_had_it(user: str, folder: Path, web: int) -> None:
    place, data = f"127.0.0.1:{web}", folder / "taken"
    code = f"fetched('http://{place}/')"
    async with walled(user, data, network=place) as client:
        await call(client, "create_notebook", name="once", network=[place])
        assert (await said(Book(client=client, name="once"), code))[0] == "found /"
    async with walled(user, data) as client:
        value, words = await said(Book(client=client, name="once"), code)
        assert value == 403 and f"Not connected to {place}" in words
