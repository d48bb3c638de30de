"""A confined backend goes to the address that was looked at; a question is answered by its own notebook's caller."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest

from quire.capabilities import web
from quire.capabilities.connections import McpBackends
from quire.capabilities.secrets import Secrets
from quire.core.capabilities.model import Backend
from quire.core.errors import NotFound
from quire.core.model import NewCell, Notebook, NotebookId, Principal
from quire.core.runs.active_run import ActiveRun, Question
from quire.core.runs.transcript import Transcript
from quire.frontends.mcp.elicitation import Asking, ClientMustAsk


@pytest.mark.parametrize("host", ["1.1.1.1", "[2606:4700::1111]"])
async def test_a_request_to_a_public_address_goes_there_under_its_own_name(host: str) -> None:
    request = httpx2.Request("POST", f"https://{host}:8443/mcp?x=1")
    await web._pin_address(request)
    assert str(request.url) == f"https://{host}:8443/mcp?x=1"
    assert request.headers["host"] == f"{host}:8443"
    assert request.extensions["sni_hostname"] == host.strip("[]")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "0", "no-such-host.invalid"]
)
async def test_a_request_to_the_servers_own_network_goes_nowhere(host: str) -> None:
    with pytest.raises(httpx2.ConnectError):
        await web._pin_address(httpx2.Request("POST", f"http://{host}/mcp"))


def test_nothing_of_the_machine_is_resolved_for_a_confined_backend() -> None:
    backends = McpBackends(environ={"HOME": "/home", "KEY": "secret"}, hosts=("10.0.0.1:80",))
    headers = {"A": "env:KEY", "B": "${KEY}", "C": "Bearer file:/etc/passwd"}
    for url, public in (("http://10.0.0.1/mcp", False), ("http://10.0.0.1:81/mcp", True), ("http://a.test", True)):
        said = Backend(url=url, headers=headers, command=("ls",), config="/etc/passwd", entry="x", confined=True)
        resolved = backends._resolve(said, Secrets({"KEY": "secret"}))
        assert (resolved.headers, resolved.command, resolved.env, resolved.folder, resolved.public_only) == (
            headers,
            (),
            {},
            "",
            public,
        )
        assert backends.variables(said) == set()


async def test_an_answer_reaches_a_question_of_its_own_notebook_only() -> None:
    def book(id_: str) -> Notebook:
        return Notebook(id=NotebookId(id_), name="x", owner=Principal(id_), runtime="python", created_at=0)

    def ctx(state: str | None) -> Any:
        return cast(Any, SimpleNamespace(state=state, input_responses=None, is_modern=True))

    mine, theirs, asking = book("alice"), book("bob"), Asking()
    active = ActiveRun(
        notebook=mine, target=NewCell(source="input()"), timeout=1, transcript=Transcript(10_000), author="agent"
    )
    with pytest.raises(ClientMustAsk) as ended:
        await asking.ask(ctx(None), active, Question(number=1, prompt="?"))
    (key,) = asking._waiting
    state = json.dumps({"question": key})
    assert ended.value.result is not None
    for _ in range(2):
        with pytest.raises(NotFound):
            asking.reply(ctx(state), theirs)
    reply = asking.reply(ctx(state), mine)
    assert reply is not None and reply.active is active
