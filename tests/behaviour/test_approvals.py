"""A person is asked before a call that may destroy something, over each transport in each protocol era."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult

import quire
from quire.core.errors import NotFound
from tests.support.notebooks import new_book
from tests.support.quick_backend import Quick, install
from tests.support.servers import SharedServers, call, http_client, http_server, stdio_client, text
from tests.support.waiting import DEADLINE, until

WAYS = ["stdio-2026", "stdio-2025", "http-2026", "http-2025"]
WIPE = "quick.wipe('/all')"
DENIES = "try:\n    {}\nexcept ApprovalDenied as denied:\n    error = denied\n[error.tool, error.args_given]"


@dataclass
class Person:
    """What they were asked, and how they answer: each in turn, or as `reply` does."""

    answers: list[Any] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    reply: Callable[[str], Awaitable[Any]] | None = None
    at_once: int = 0
    most_at_once: int = 0

    async def __call__(self, message: str, response_type: Any, params: Any, context: Any) -> Any:
        self.asked.append(message)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            said = await self.reply(message) if self.reply is not None else self.answers.pop(0)
        finally:
            self.at_once -= 1
        return said if isinstance(said, ElicitResult) else {"approve": said}


@dataclass(frozen=True, kw_only=True)
class Table:
    """A client of a server with the quick backend, the person beside it, and a notebook of the case's own."""

    client: Client[Any]
    person: Person
    name: str
    quick: Quick

    async def run(self, code: str, timeout: float = 30) -> Any:
        return await self.ask("execute", code=code, timeout=timeout)

    async def ask(self, tool: str, **arguments: Any) -> Any:
        return await call(self.client, tool, notebook=self.name, **arguments)

    async def value(self, code: str) -> Any:
        result = await self.run(code)
        assert not result.is_error, text(result)
        return result.structured_content["return_value"]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Quick]]:
    folder = tmp_path_factory.mktemp("http")
    with http_server(folder / "data", preload="", grace=0.5) as (found, _):
        yield found, Quick(journal=folder / "journal")


@pytest.fixture(scope="module", params=WAYS)
async def connected(
    request: pytest.FixtureRequest, web: tuple[str, Quick], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Client[Any], Person, Quick]]:
    person = Person()
    async with connection(request.param, web, tmp_path_factory, person) as (client, quick):
        yield client, person, quick


@pytest.fixture
async def table(connected: tuple[Client[Any], Person, Quick]) -> AsyncIterator[Table]:
    client, person, quick = connected
    person.answers, person.asked, person.reply, person.most_at_once = [], [], None, 0
    quick.journal.write_text("")
    made = await call(client, "create_notebook", use=False)
    here = Table(client=client, person=person, name=made.structured_content["name"], quick=quick)
    yield here
    await here.ask("reset")


class connection:
    """A client that has the quick backend, in one of the ways."""

    def __init__(
        self, way: str, web: tuple[str, Quick], folders: pytest.TempPathFactory, person: Person | None, **settings: Any
    ) -> None:
        transport, era = way.split("-")
        mode = "auto" if era == "2026" else "legacy"
        if transport == "http":
            self._client, self._quick = http_client(web[0], mode=mode, person=person), web[1]
        else:
            folder = folders.mktemp("stdio")
            self._quick = Quick(journal=folder / "journal")
            self._client = stdio_client(
                folder / "data", mode=mode, person=person, preload="", **{"grace": 0.5, **settings}
            )

    async def __aenter__(self) -> tuple[Client[Any], Quick]:
        client = await self._client.__aenter__()
        listed = (await call(client, "state", notebook="main")).structured_content["capabilities"]
        if not listed:
            await install(client, "quick", self._quick.command)
        return client, self._quick

    async def __aexit__(self, *error: object) -> None:
        await self._client.__aexit__(*error)  # type: ignore[arg-type]


async def test_a_yes_lets_the_call_through_and_the_question_names_it(table: Table) -> None:
    table.person.answers = [True]
    assert await table.value(WIPE) == "wiped /all"
    [question] = table.person.asked
    assert 'quick.wipe(path="/all")' in question and repr(table.name) in question
    assert table.quick.calls("wipe") == [{"path": "/all"}]
    listed = (await table.ask("list_cells")).structured_content["cells"]
    assert [cell["state"] for cell in listed] == ["SUCCESS"]  # the cell ran once


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(False, id="no"),
        pytest.param(ElicitResult(action="decline"), id="decline"),
        pytest.param(ElicitResult(action="cancel"), id="cancel"),
        pytest.param(ElicitResult(action="accept", content={}), id="accepted without a yes"),
    ],
)
async def test_any_answer_but_yes_denies_the_call(table: Table, answer: Any) -> None:
    table.person.answers = [answer, answer, True]
    assert await table.value(DENIES.format(WIPE)) == ["quick.wipe", {"path": "/all"}]
    found = (await table.run(WIPE)).structured_content
    assert (found["state"], found["error_type"]) == ("ERROR", "ApprovalDenied")
    assert "A person said no" in found["error_message"]
    assert table.quick.calls("wipe") == []
    assert await table.value(f"isinstance(error, ToolError), {WIPE}") == [True, "wiped /all"]


async def test_wrong_arguments_are_refused_before_a_person_is_asked(table: Table) -> None:
    found = (await table.run("quick.wipe(5)")).structured_content
    assert found["error_type"] == "TypeError"
    assert found["error_message"].startswith("quick.wipe: argument path must be a string, not 5. Its signature: wipe(")
    assert table.person.asked == [] == table.quick.calls()


async def test_calls_that_destroy_nothing_are_not_asked_about(table: Table) -> None:
    assert await table.value("quick.echo(1)") == "1"
    assert table.person.asked == []


async def test_several_at_once_are_asked_one_after_the_other(table: Table) -> None:
    table.person.answers = [True, False, True]
    code = """
import asyncio
found = await asyncio.gather(*(quick.wipe.aio(str(n)) for n in range(3)), return_exceptions=True)
[type(each).__name__ for each in found]
"""
    kinds = await table.value(code)
    assert sorted(kinds) == ["ApprovalDenied", "Text", "Text"]
    assert len(table.person.asked) == 3 and table.person.most_at_once == 1
    asked = [question.split('path="')[1][0] for question in table.person.asked]
    denied = str(kinds.index("ApprovalDenied"))
    assert asked[1] == denied and sorted(asked) == ["0", "1", "2"]
    assert sorted(each["path"] for each in table.quick.calls("wipe")) == sorted({"0", "1", "2"} - {denied})


async def test_threads_ask_too(table: Table) -> None:
    table.person.answers = [True] * 4
    code = "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n"
    code += "    done = list(pool.map(quick.wipe, 'abcd'))\ndone"
    assert await table.value(code) == [f"wiped {each}" for each in "abcd"]
    assert len(table.person.asked) == 4


async def test_input_and_approval_are_asked_in_one_cell(table: Table) -> None:
    table.person.answers = [ElicitResult(action="accept", content={"value": "/here"}), True]
    assert await table.value("quick.wipe(input('Which? '))") == "wiped /here"
    assert table.person.asked[0] == "Which?" and "quick.wipe" in table.person.asked[1]


async def test_the_persons_time_is_not_the_runs(table: Table) -> None:
    answered = anyio.Event()

    async def think(message: str) -> Any:
        await answered.wait()
        return True

    table.person.reply = think
    results: list[Any] = []

    async def run() -> None:
        results.append(await table.run(WIPE, timeout=1))

    async def outlasted() -> bool:
        shown = (await table.ask("get_cell", cell_id_or_number=0)).structured_content
        assert shown["state"] == "RUNNING"
        return bool(shown["seconds"] > 2)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await until(is_asked(table, 1), "the person is asked")
        await until(outlasted, "the cell runs for longer than its timeout")
        answered.set()
    found = results[0].structured_content
    assert (found["state"], found["return_value"]) == ("SUCCESS", "wiped /all"), text(results[0])


async def test_an_interrupt_before_the_answer_calls_nothing(table: Table) -> None:
    answered = anyio.Event()

    async def think(message: str) -> Any:
        await answered.wait()
        return True

    table.person.reply = think
    results: list[Any] = []

    async def run() -> None:
        results.append(await table.run(f"x = 41\n{WIPE}"))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await until(is_asked(table, 1), "the person is asked")
        stopped = await table.ask("interrupt")
        assert stopped.structured_content["state"] == "INTERRUPTED"
        answered.set()
    assert "Variables are kept" in results[0].structured_content["error_message"]
    table.person.reply, table.person.answers = None, [True]
    assert await table.value(f"x, {WIPE}") == [41, "wiped /all"]
    assert len(table.quick.calls("wipe")) == 1


async def test_a_kernel_that_dies_before_the_answer_calls_nothing(table: Table, tmp_path: Path) -> None:
    asked, gone = tmp_path / "asked", anyio.Event()

    async def think(message: str) -> Any:
        asked.touch()
        with anyio.move_on_after(DEADLINE):
            await gone.wait()
        return True

    table.person.reply = think
    code = f"""
import os, threading
threading.Thread(target=quick.wipe, args=('/all',)).start()
while not os.path.exists({str(asked)!r}):
    quick.echo(1)
os._exit(3)
"""
    results: list[Any] = []

    async def run() -> None:
        results.append(await table.run(code))

    async def crashed() -> bool:
        shown = await table.ask("get_cell", cell_id_or_number=0)
        return not shown.is_error and shown.structured_content["state"] == "CRASHED"

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await until(crashed, "the cell has crashed")
        gone.set()
    assert results[0].structured_content["state"] == "CRASHED", text(results[0])
    assert table.quick.calls("wipe") == []
    table.person.reply, table.person.answers = None, [True]
    assert await table.value(WIPE) == "wiped /all"


async def test_code_that_installs_is_asked_about(table: Table, tmp_path: Path) -> None:
    other = Quick(journal=tmp_path / "journal")
    table.person.answers = [False, True]
    code = f"caps.install('other', {other.command!r})\nother.echo(1)"
    found = (await table.run(code)).structured_content
    assert found["error_type"] == "ApprovalDenied" and other.pids() == []
    assert await table.value(code) == "1"
    assert all("caps.install(" in each and "quick.py" in each for each in table.person.asked)
    await call(table.client, "uninstall_capability", name="other")


async def test_a_question_names_what_would_be_done_whatever_the_code_says(table: Table) -> None:
    table.person.answers = [False, False]
    ask = "caps._known.ask"
    found = await table.run(f"{ask}('uninstall', capability='quick', method='describe', given={{'name': 'old_test'}})")
    assert found.structured_content["error_type"] == "ApprovalDenied", text(found)
    assert 'caps.uninstall(name="quick")' in table.person.asked[0]
    found = await table.run(f"{ask}('install', capability='other', method='describe', given={{'command': 'x'}})")
    assert found.structured_content["error_type"] == "ApprovalDenied", text(found)
    assert 'caps.install(command="x", name="other")' in table.person.asked[1]


async def test_a_capability_of_the_notebook_is_asked_about_if_it_says_so(table: Table) -> None:
    table.person.answers = [True, False]
    code = "@capability(approve='always')\ndef publish(title: str) -> str:\n    return f'published {title}'\n"
    assert await table.value(f"{code}publish('news')") == "published news"
    found = (await table.run("publish('more')")).structured_content
    assert found["error_type"] == "ApprovalDenied", found
    assert 'wants to call publish(title="more")' in table.person.asked[1]


async def test_a_published_tool_is_asked_about_when_it_is_called(table: Table) -> None:
    table.person.answers = [True, False]
    name = f"publish_{table.name.replace('-', '_')}"
    code = f"@capability(approve='always', expose=True)\ndef {name}(title: str) -> str:\n    return f'has {{title}}'\n"
    await table.value(code)
    allowed = await call(table.client, name, title="news")
    assert allowed.structured_content["return_value"] == "has news", text(allowed)
    denied = await call(table.client, name, title="more")
    assert denied.is_error and denied.structured_content["error_type"] == "ApprovalDenied", text(denied)
    assert len(table.person.asked) == 2


async def test_a_long_argument_is_shortened_for_the_person(table: Table) -> None:
    table.person.answers = [True]
    assert await table.value("len(quick.wipe('/' + 'x' * 500_000))") == len("wiped /") + 500_000
    assert len(table.person.asked[0]) < 2_500 and "characters more" in table.person.asked[0]


async def test_what_a_person_sees_has_no_control_characters(table: Table) -> None:
    table.person.answers = [True]
    await table.value("quick.wipe('\\x1b[2Jnothing\\u202e\\u0007')")
    [question] = table.person.asked
    assert all(each.isprintable() or each == "\n" for each in question), question


async def test_each_era_is_the_one_it_says(table: Table, connected: Any, request: pytest.FixtureRequest) -> None:
    era = request.node.callspec.params["connected"].split("-")[1]
    assert str(table.client.protocol_version).startswith(era)


# Where no person can be asked


@pytest.mark.parametrize("way", WAYS)
async def test_without_a_person_it_is_denied_with_how_to_allow_it(
    way: str, web: tuple[str, Quick], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with connection(way, web, tmp_path_factory, None) as (client, quick):
        before = len(quick.calls("wipe"))
        found = (await call(client, "execute", code=WIPE, notebook="main")).structured_content
        assert (found["state"], found["error_type"]) == ("ERROR", "ApprovalDenied")
        assert "no person can be asked here" in found["error_message"]
        assert 'approve = {"quick.wipe" = "allow"}' in found["error_message"]
        assert len(quick.calls("wipe")) == before


# Each case installs the backend under a name of its own, so that cases whose rules name it share a server.
OWN_RULES = [
    ("{name}.wipe=never", "{name}.wipe('/all')", "called"),
    ("{name}.*=never", "{name}.wipe('/all')", "called"),
    ("{name}.echo=always", "{name}.echo(1)", "denied"),
    ("{name}.*=ask", "{name}.echo(1)", "denied"),
    ("other.*=never", "{name}.wipe('/all')", "denied"),
    ("{name}.echo=always", "{name}.add(1)", "called"),
    ("{name}.echo-text=always", "{name}.echo_text('a')", "denied"),
    ("{name}.echo_text=always", "{name}.echo_text('a')", "denied"),  # by the name that code calls it by
    ("{name}.*=always", "{name}.read('notes://all')", "denied"),
    ("{name}.read=always", "caps._known.ask('read', capability='{name}', method='x', given={{}})", "denied"),
]
COMMON_RULES = ",".join(rule.format(name=f"own{number}") for number, (rule, _, _) in enumerate(OWN_RULES))


@pytest.mark.parametrize(
    ("rules", "name", "code", "outcome"),
    [
        *((COMMON_RULES, f"own{n}", code.format(name=f"own{n}"), end) for n, (_, code, end) in enumerate(OWN_RULES)),
        ("quick.wipe=always,*=never", "free", "free.wipe('/all')", "called"),
        ("quick.wipe=always,*=never", "quick", WIPE, "denied"),
        ("*=always", "quick", "quick.prompt('greet', who='a')", "denied"),
    ],
    ids=[*(f"{rule}: {code}" for rule, code, _ in OWN_RULES), "*=never", "always before *=never", "*=always"],
)
async def test_the_operators_rules_decide(
    shared_servers: SharedServers, tmp_path: Path, rules: str, name: str, code: str, outcome: str
) -> None:
    quick = Quick(journal=tmp_path / "journal")
    async with new_book(await shared_servers.client(approve=rules)) as book:
        await install(book.client, name, quick.command)
        found = (await book.run(code)).structured_content
        kinds = {"called": None, "denied": "ApprovalDenied"}
        assert found["error_type"] == kinds[outcome], found
        assert len(quick.calls()) == (1 if outcome == "called" else 0)
        await call(book.client, "uninstall_capability", name=name)


UNASKED = {"approve_unasked": "true", "approve": "quick.echo=always"}


async def test_the_operator_can_allow_calls_that_would_be_asked_about(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    quick = Quick(journal=tmp_path / "journal")
    async with new_book(await shared_servers.client(**UNASKED)) as book:
        await install(book.client, "quick", quick.command)
        assert not (await book.run(WIPE)).is_error
        denied = (await book.run("quick.echo(1)")).structured_content
        assert denied["error_type"] == "ApprovalDenied"  # always: without a question there is no yes
        await call(book.client, "uninstall_capability", name="quick")


async def test_an_unknown_rule_is_refused_when_the_server_starts(tmp_path: Path) -> None:
    with pytest.raises(Exception):  # noqa: B017 - the client's own words for a server that ends
        async with stdio_client(tmp_path / "data", preload="", approve="quick.wipe=perhaps") as client:
            await call(client, "state")


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Quick]]:
    """The address of a server that waits half a second for an answer, and its backend."""
    folder = tmp_path_factory.mktemp("hurried")
    with http_server(folder / "data", approve_timeout=0.5, grace=0.5) as (url, _):
        yield url, Quick(journal=folder / "journal")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_without_an_answer_in_time_it_is_denied(hurried: tuple[str, Quick], mode: str) -> None:
    (url, quick), never = hurried, anyio.Event()

    async def think(message: str) -> Any:
        with anyio.move_on_after(DEADLINE):
            await never.wait()
        return True

    person = Person(reply=think)
    async with http_client(url, mode=mode, person=person) as client, new_book(client) as book:
        if not (await book.ask("state")).structured_content["capabilities"]:
            await install(client, "quick", quick.command)
        results: list[Any] = []

        async def run() -> None:
            results.append(await book.run(f"x = 1\n{WIPE}"))

        async def over() -> bool:
            shown = await book.ask("get_cell", cell_id_or_number=0)
            return not shown.is_error and shown.structured_content["state"] == "ERROR"

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await until(over, "the cell has failed")
            never.set()
        shown = await book.ask("get_cell", cell_id_or_number=0)
        assert "ApprovalDenied" in text(shown) and "within 0.5 s" in text(shown)
        assert quick.calls("wipe") == []
        assert results[0].is_error and "ApprovalDenied" in text(results[0])


async def test_each_of_several_questions_has_its_own_time(tmp_path: Path) -> None:
    """A person who needs most of the time for each is not too late for those that waited behind the first."""
    quick = Quick(journal=tmp_path / "journal")

    async def think(message: str) -> Any:
        await anyio.sleep(5)
        return True

    async def run(url: str, mode: str) -> None:
        async with http_client(url, mode=mode, person=Person(reply=think)) as client, new_book(client) as book:
            code = "import asyncio\nfound = await asyncio.gather(*(quick.wipe.aio(each) for each in 'ab'))\nfound"
            found = await book.run(code, timeout=DEADLINE)
            assert found.structured_content["return_value"] == ["wiped a", "wiped b"], text(found)

    with http_server(tmp_path / "data", approve_timeout=9) as (url, _):
        async with http_client(url) as client:
            await install(client, "quick", quick.command)
        async with anyio.create_task_group() as group:
            group.start_soon(run, url, "auto")
            group.start_soon(run, url, "legacy")


async def test_a_capability_of_the_notebook_is_asked_about_in_its_first_cell_too(
    shared_servers: SharedServers,
) -> None:
    async with new_book(await shared_servers.client(**UNASKED)) as book:
        code = "@capability(approve='ask')\ndef publish() -> str:\n    return 'published'\npublish()"
        assert await book.value(code) == "published"
        assert await book.value("publish()") == "published"
        stricter = await book.run(code.replace("'ask'", "'always'"))
        assert stricter.structured_content["error_type"] == "ApprovalDenied"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_run_that_outlasted_its_call_cannot_ask(tmp_path: Path, mode: str) -> None:
    quick, person = Quick(journal=tmp_path / "journal"), Person(answers=[True])
    go = tmp_path / "go"
    async with stdio_client(tmp_path / "data", mode=mode, person=person, preload="", patience=1) as client:
        await install(client, "quick", quick.command)
        waits = f"import os\nwhile not os.path.exists({str(go)!r}):\n    quick.echo(1)\n"
        result = await call(client, "execute", code=f"{waits}{WIPE}")
        assert result.structured_content["state"] == "RUNNING", text(result)
        go.touch()

        async def over() -> bool:
            return bool((await call(client, "get_cell", cell_id_or_number=0)).structured_content["state"] != "RUNNING")

        await until(over, "the cell is over")
        shown = text(await call(client, "get_cell", cell_id_or_number=0))
        assert "ApprovalDenied" in shown and "no person can be asked here" in shown
        assert person.asked == [] and quick.calls("wipe") == []
        assert (await call(client, "execute", code=WIPE)).structured_content["return_value"] == "wiped /all"


# From Python


async def test_python_sees_what_is_pending_and_answers(tmp_path: Path) -> None:
    quick = Quick(journal=tmp_path / "journal")
    async with quire.open(tmp_path / "data") as q:
        assert "wipe" in await q.install_capability("quick", command=quick.command)
        assert await q.capabilities() == {"quick": "connected"}
        book = await q.notebook()
        unasked = await book.add_cell(WIPE)
        assert unasked.state == "ERROR" and q.approvals.pending() == []

        async def answer(approved: bool) -> None:
            with anyio.fail_after(DEADLINE):
                while not (pending := q.approvals.pending()):
                    await anyio.sleep(0.01)
            [one] = pending
            assert (one.notebook, one.what, one.arguments) == (book.name, "quick.wipe", 'path="/all"')
            assert one.cell is not None and abs(one.asked_at - time.time()) < DEADLINE
            q.approvals.answer(one.id, approved)
            with pytest.raises(NotFound):
                for _ in range(1_000):
                    q.approvals.answer(one.id, True)
                    await anyio.sleep(0.01)

        cells: list[Any] = []

        async def run() -> None:
            cells.append(await book.add_cell(WIPE))

        with q.approvals.watching():
            for approved, state in ((True, "SUCCESS"), (False, "ERROR")):
                async with anyio.create_task_group() as group:
                    group.start_soon(run)
                    group.start_soon(answer, approved)
                assert cells[-1].state == state
        assert len(quick.calls("wipe")) == 1
        await q.uninstall_capability("quick")
        assert await q.capabilities() == {}
    quick.is_over()
    outcomes = [json.loads(line)["outcome"] for line in (tmp_path / "data" / "audit.jsonl").read_text().splitlines()]
    assert outcomes == ["denied", "ok", "denied"]


async def test_what_was_said_when_it_was_installed_is_kept(tmp_path: Path) -> None:
    quick = Quick(journal=tmp_path / "journal")
    async with quire.open(tmp_path / "data") as q:
        await q.install_capability("quick", command=quick.command, approve={"echo": "always"})
    async with quire.open(tmp_path / "data") as q:
        book = await q.notebook()
        assert (await book.add_cell("quick.echo(1)")).state == "ERROR"
        assert (await book.add_cell("quick.add(1)")).state == "SUCCESS"


def is_asked(table: Table, times: int) -> Callable[[], Awaitable[bool]]:
    async def asked() -> bool:
        return len(table.person.asked) >= times

    return asked
