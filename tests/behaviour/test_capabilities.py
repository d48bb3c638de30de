"""Capabilities as an agent's code uses them: real backends, through a real client of a real server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from tests.support.external_programs import EVERYTHING_SERVER, FILESYSTEM_SERVER, node_program
from tests.support.notebooks import Book, new_book
from tests.support.quick_backend import GOOD, Quick, install, misbehaving
from tests.support.servers import SharedServers, call, stdio_client, text
from tests.support.waiting import until, wait_until


@dataclass(frozen=True, kw_only=True)
class Server:
    client: Client[Any]
    data: Path
    quick: Quick


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """One with the quick backend and the good one installed."""
    folder = tmp_path_factory.mktemp("capabilities")
    quick = Quick(journal=folder / "journal")
    async with stdio_client(folder / "data", preload="") as client:
        await install(client, "quick", quick.command)
        await install(client, "good", GOOD)
        yield Server(client=client, data=folder / "data", quick=quick)
    quick.is_over()


@pytest.fixture
async def book(server: Server) -> AsyncIterator[Book]:
    async with new_book(server.client) as made:
        yield made


@pytest.fixture
async def other_book(shared_servers: SharedServers) -> AsyncIterator[Book]:
    """A notebook of another server, for tests that install backends of their own."""
    async with new_book(await shared_servers.client(approve="files.*=never")) as made:
        yield made


@pytest.fixture
def quick(server: Server) -> Quick:
    server.quick.journal.write_text("".join(f"started {pid}\n" for pid in server.quick.running()))
    return server.quick


def raised(result: Any, kind: str, *words: str) -> str:
    """The cell failed so; its message, which has these words."""
    found = result.structured_content
    assert (found["state"], found["error_type"]) == ("ERROR", kind), text(result)
    message: str = found["error_message"]
    assert [word for word in words if word not in message] == [], message
    return message


# Seeing what there is


async def test_caps_says_in_a_line_each_what_is_installed(book: Book) -> None:
    shown = (await book.run("print(caps)")).structured_content["stdout"]
    first, second = shown.splitlines()
    assert first == "quick (17 methods)  # Quick and watched"
    assert second.startswith("good (") and second.endswith(" methods)  # A backend of the tests")


async def test_searching_finds_methods_over_all_capabilities_best_first(book: Book) -> None:
    found = await book.value("list(caps.search('sum of two numbers', limit=2))")
    assert found[0] == "quick.add(a: int, b: int = 1) -> Text  # The sum of two numbers"
    assert len(found) == 2
    every = await book.value("list(caps.search('sum'))")
    assert [line.split("(")[0] for line in every] == ["quick.add", "good.add"]
    assert await book.value("list(caps.search('zzzz qqqq'))") == []


async def test_names_are_python_names_and_dir_lists_them(book: Book) -> None:
    names = await book.value("dir(quick)")
    assert "echo_text" in names and "echo-text" not in names
    assert {"describe", "resources", "read", "prompts", "prompt"} <= set(names)
    assert await book.value("quick.echo_text('hé ↯ 𝄞')") == "hé ↯ 𝄞"
    assert "Its own name is 'echo-text'" in await book.value("quick.describe('echo_text')")


async def test_help_shows_the_signature_and_what_it_does(book: Book) -> None:
    shown = (await book.run("help(quick.add)")).structured_content["stdout"]
    assert "add(a: int, b: int = 1)" in shown and "The sum of two numbers." in shown
    assert "readOnly" not in shown and "quire" not in shown


async def test_a_signature_is_a_real_one(book: Book) -> None:
    code = "import inspect\nsignature = inspect.signature(quick.add)\n"
    found = await book.value(f"{code}[[p.name, p.default is p.empty] for p in signature.parameters.values()]")
    assert found == [["a", True], ["b", False]]
    assert await book.value("signature.parameters['b'].default, signature.parameters['a'].annotation is int") == [
        1,
        True,
    ]
    assert await book.value("signature.bind(4).args") == [4]


async def test_help_of_a_typed_method_says_what_its_result_has(book: Book) -> None:
    shown = await book.value("quick.person.__doc__")
    assert "class PersonResult(TypedDict):" in shown and "tags: list[str]" in shown
    assert await book.value("sorted(quick.person.returns.__annotations__)") == ["home", "name", "tags"]


async def test_describing_a_capability_ends_with_its_instructions(book: Book) -> None:
    described = await book.value("quick.describe()")
    assert described.startswith("quick: ") and described.endswith("It is a backend of the tests.")


# Calling


async def test_arguments_are_given_by_place_or_by_name(book: Book) -> None:
    calls = "quick.add(2), quick.add(2, 3), quick.add(a=2, b=3), quick.add(2, b=5)"
    assert await book.value(f"[int(each) for each in ({calls})]") == [3, 5, 5, 7]


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("quick.add()", "TypeError", ["lacks 'a'", "add(a: int, b: int = 1)"]),
        ("quick.add(1, 2, 3)", "TypeError", ["takes 2 arguments, not 3", "add(a: int, b: int = 1)"]),
        ("quick.add('1')", "TypeError", ["argument a", "add(a: int, b: int = 1)"]),
        ("quick.add(1.5)", "TypeError", ["argument a"]),
        ("quick.add(True)", "TypeError", ["argument a"]),
        ("quick.add(1, c=2)", "TypeError", ["no argument 'c'"]),
        ("quick.add(1, a=2)", "TypeError", ["'a' twice"]),
        ("quick.add(object())", "TypeError", ["argument a"]),
        ("quick.add(float('nan'))", "ValueError", ["nan"]),
        ("quick.add(1, _timeout=-1)", "ValueError", ["_timeout"]),
        ("quick.add(1, _timeout='soon')", "ValueError", ["_timeout"]),
    ],
)
async def test_wrong_arguments_fail_before_the_wire(
    book: Book, quick: Quick, code: str, kind: str, words: list[str]
) -> None:
    raised(await book.run(code), kind, *words)
    raised(await book.run(f"await {code.replace('.add(', '.add.aio(')}"), kind, *words)
    assert quick.calls() == []


async def test_a_typed_result_has_attributes_and_is_a_dict(book: Book) -> None:
    code = "found = quick.person('Ada')\n"
    assert await book.value(f"{code}found.name, found['tags'], found.home.city, isinstance(found, dict)") == [
        "Ada",
        ["a", "b"],
        "Bern",
        True,
    ]
    assert await book.value("import json\njson.loads(json.dumps(found)) == found") is True
    raised(await book.run("found.age"), "AttributeError", "'age'", "name, tags, home")


async def test_text_that_is_json_is_read_when_asked(book: Book) -> None:
    code = "facts = quick.facts()\nisinstance(facts, str), facts.json().sky.colour, facts.json()['items']"
    assert await book.value(code) == [True, "blue", [1, 2]]
    raised(await book.run("quick.echo_text('no json').json()"), "JSONDecodeError")


async def test_a_tools_error_says_which_with_what_and_what_to_do(book: Book) -> None:
    code = "try:\n    quick.fail(why='no such mailbox')\nexcept ToolError as error:\n    caught = error\n"
    found = await book.value(f"{code}[caught.tool, caught.args_given, caught.hint, type(caught) is ToolError]")
    assert found == ["quick.fail", {"why": "no such mailbox"}, "help(quick.fail) says what it takes.", True]
    message = raised(await book.run("quick.fail('no such mailbox')"), "ToolError", "no such mailbox")
    assert message.count("quick.fail") <= 2
    assert "quire" not in text(await book.run("quick.fail('no such mailbox')")).replace("'quire", "")


async def test_a_method_that_is_not_there_names_the_nearest(book: Book) -> None:
    raised(await book.run("quick.ecko(1)"), "AttributeError", "no method 'ecko'", "The nearest: echo")
    raised(await book.run("caps.quik"), "AttributeError", "'quik'", "quick")
    raised(await book.run("caps['nothing']"), "KeyError", "nothing", "quick, good")


async def test_a_hundred_calls_are_made_at_once_by_gather(book: Book, quick: Quick) -> None:
    code = """
import asyncio
async def one(n):
    return await quick.hold.aio(str(n))
async def free():
    while len(quick_held := (await quick.held.aio()).json()) < 100:
        pass
    for name in quick_held:
        await quick.release.aio(name)
*answers, _ = await asyncio.gather(*(one(n) for n in range(100)), free())
[int(each) for each in answers]
"""
    assert await book.value(code) == list(range(100))
    assert len(quick.calls("hold")) == 100


async def test_fifty_threads_wait_for_their_own_answers(book: Book) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(51) as pool:
    waiting = [pool.submit(quick.hold, str(n)) for n in range(50)]
    while len(quick.held().json()) < 50:
        pass
    for n in reversed(range(50)):
        quick.release(str(n))
    answers = [int(each.result()) for each in waiting]
answers
"""
    assert await book.value(code) == list(range(50))


async def test_a_cell_that_mixes_threads_tasks_and_plain_calls_gets_each_answer(book: Book) -> None:
    code = """
import asyncio
async def tasks(start):
    return [int(each) for each in await asyncio.gather(*(quick.echo.aio(start + n) for n in range(25)))]
def plain(start):
    return [int(quick.echo(start + n)) for n in range(25)]
many = await asyncio.gather(
    *(tasks(1000 * n) for n in range(4)), *(asyncio.to_thread(plain, 1000 * n) for n in range(4, 8)),
    *(asyncio.to_thread(asyncio.run, tasks(1000 * n)) for n in range(8, 10)),
)
many == [[1000 * n + each for each in range(25)] for n in range(10)]
"""
    assert await book.value(code) is True


async def test_a_call_may_take_as_long_as_it_is_given(book: Book, quick: Quick) -> None:
    result = await book.run("quick.hold('forever', _timeout=0.3)")
    raised(result, "ToolTimeout", "quick.hold", "_timeout=")
    wait_until(lambda: quick.cancelled() == ["forever"], "the backend hears that it is cancelled")
    assert await book.value("isinstance(ToolTimeout('x'), ToolError), int(quick.echo(1))") == [True, 1]


async def test_logs_of_a_backend_go_to_stderr_and_progress_to_the_call(
    server: Server, book: Book, quick: Quick
) -> None:
    heard: list[str] = []
    arrived = anyio.Event()

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")
        if "second page" in (message or ""):
            arrived.set()

    results: list[Any] = []

    async def run() -> None:
        code = "import threading\nwaiter = threading.Thread(target=lambda: quick.work('slow'))\nwaiter.start()\n"
        code += "waiter.join()\n'over'"
        given = {"code": code, "notebook": book.name}
        results.append(await server.client.call_tool("execute", given, progress_handler=listen))

    async with new_book(server.client) as other, anyio.create_task_group() as group:
        group.start_soon(run)
        with anyio.fail_after(60):
            await arrived.wait()
        await other.value("quick.release('slow')")
    found = results[0].structured_content
    assert found["return_value"] == "over"
    assert found["stderr"] == "[quick warning] page 2 is slow\n"
    assert any(each == "quick.work: 2 of 5 second page" for each in heard)


LIMITS = {"max_calls": 10, "call_chars": 1_000}


@dataclass(frozen=True, kw_only=True)
class Limited:
    """A notebook of a server with small limits, and the backend that was installed there for the test."""

    book: Book
    quick: Quick


@pytest.fixture
async def limited(shared_servers: SharedServers, tmp_path: Path) -> AsyncIterator[Limited]:
    quick = Quick(journal=tmp_path / "journal")
    async with new_book(await shared_servers.client(**LIMITS)) as book:
        await install(book.client, "quick", quick.command)
        yield Limited(book=book, quick=quick)
        await call(book.client, "uninstall_capability", name="quick")


async def test_a_run_makes_no_more_calls_than_one_may(limited: Limited) -> None:
    book, quick = limited.book, limited.quick
    raised(await book.run("for n in range(50):\n    quick.echo(n)"), "ToolError", "10 calls", "max_calls")
    assert len(quick.calls("echo")) == 10
    assert await book.value("quick.echo(1)") == "1"  # another cell may call again


async def test_the_operators_timeout_applies_where_the_code_gives_none(tmp_path: Path) -> None:
    quick = Quick(journal=tmp_path / "journal")
    async with stdio_client(tmp_path / "data", call_timeout=0.3) as client:
        await install(client, "quick", quick.command)
        raised(await Book(client=client).run("quick.hold('forever')"), "ToolTimeout", "0.3 s")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("'x' * 40_000_000", ["too large"]),
        ("'\\ud800 lone'", None),
        ("'\\x00 null'", None),
        ("b'bytes'", ["argument text", "base64"]),
    ],
)
async def test_odd_arguments_arrive_or_are_refused_in_words(book: Book, value: str, words: list[str] | None) -> None:
    found = (await book.run(f"len(quick.echo_text({value}))")).structured_content
    if words is None:
        assert found["state"] == "SUCCESS", found
    else:
        assert found["error_type"] in ("ValueError", "TypeError"), found
        assert [word for word in words if word not in found["error_message"]] == [], found["error_message"]
    assert await book.value("quick.echo(1)") == "1"


# What comes back


async def test_a_picture_is_shown_as_an_image_of_the_cell(server: Server, book: Book) -> None:
    result = await book.run("picture = quick.picture()\npicture")
    assert [block.type for block in result.content if block.type == "image"] == ["image"]
    [output] = [each for each in result.structured_content["outputs"] if each["type"] == "image"]
    assert (output["image"]["width"], output["image"]["height"]) == (1, 1)
    assert await book.value("picture.mime, picture.data[:4] == b'\\x89PNG'") == ["image/png", True]
    assert [block.type for block in (await book.run("display(picture)")).content].count("image") == 1


async def test_a_link_to_a_resource_is_read_when_asked(book: Book, quick: Quick) -> None:
    assert await book.value("link = quick.link()\nlink.uri, link.mime") == ["notes://all", "text/plain"]
    assert await book.value("link.read()") == "at notes://all"


async def test_an_enclosed_resource_has_its_content(book: Book) -> None:
    assert await book.value("quick.enclosed().read()") == "the notes themselves"


async def test_resources_and_prompts_of_a_backend_are_readable(book: Book) -> None:
    listed = await book.value("[getattr(each, 'uri', None) or each.uriTemplate for each in quick.resources()]")
    assert listed == ["notes://all", "notes://{name}"]
    assert await book.value("quick.read('notes://mine'), quick.resources()[0].read()") == [
        "at notes://mine",
        "at notes://all",
    ]
    assert await book.value("[each.name for each in quick.prompts()]") == ["greet"]
    assert await book.value("[[each.role, each.content] for each in quick.prompt('greet', who='Ada')]") == [
        ["user", "Greet Ada."]
    ]


async def test_the_good_backends_resources_and_prompts_are_readable_too(book: Book) -> None:
    assert await book.value("good.read('notes://all'), good.read('notes://x')") == ["all notes", "note x"]
    assert await book.value("good.prompt('greet', who='Ada')[0].content") == "Say hello to Ada."
    raised(await book.run("good.read('nothing://here')"), "ToolError", "nothing://here")


async def test_a_text_that_is_too_long_is_cut_and_read_whole_when_asked(limited: Limited) -> None:
    book, quick = limited.book, limited.quick
    code = "long = quick.large(25_000)\nwhole = long.read()\n"
    found = await book.value(f"{code}len(long), long.truncated, long.size, len(whole), whole.startswith(long)")
    assert found == [1_000, True, 25_000, 25_000, True]
    assert await book.value("[int(each) for each in whole.split(',')[:-1]] == list(range(2_500))") is True
    assert await book.value("short = quick.large(500)\nshort.truncated, short.read() == short") == [False, True]
    assert len(quick.calls("large")) == 2


async def test_a_result_that_is_data_is_cut_as_text_where_it_is_too_long(limited: Limited) -> None:
    code = "found = quick.person('x' * 5_000)\nfound.truncated, found.json().name == 'x' * 5_000"
    assert await limited.book.value(code) == [True, True]


# What lasts


async def test_results_and_methods_can_be_kept_and_used_in_later_cells(book: Book) -> None:
    await book.value("import pickle\nkept = [quick.person('Ada'), quick.facts(), quick.picture(), quick.link()]\n1")
    code = "again = pickle.loads(pickle.dumps(kept))\nagain[0].name, again[1].json().sky.colour, again[2] == kept[2]"
    assert await book.value(code) == ["Ada", "blue", True]
    assert await book.value("f = quick.echo\n1") == 1
    assert await book.value("pickle.loads(pickle.dumps(f)) is f, f(3), again[3].read()") == [
        True,
        "3",
        "at notes://all",
    ]


async def test_a_variable_of_that_name_hides_the_capability_until_it_is_deleted(book: Book) -> None:
    assert await book.value("quick = 5\nquick") == 5
    assert await book.value("caps['quick'].echo(2)") == "2"
    assert await book.value("del quick\nquick.echo(1)") == "1"


async def test_a_new_tool_is_callable_in_the_same_cell_and_in_the_next(other_book: Book, tmp_path: Path) -> None:
    book = other_book
    await install(book.client, "growing", Quick(journal=tmp_path / "journal").command)
    code = """
growing.grow('more')
while True:
    try:
        break_ = growing.more()
        break
    except AttributeError:
        pass
break_
"""
    assert await book.value(code) == "more was called"
    assert await book.value("growing.more(), 'more' in dir(growing)") == ["more was called", True]
    assert "more()" in text(await call(book.client, "describe_capability", name="growing"))


async def test_a_new_tool_of_an_older_backend_is_callable_in_the_next_cell(other_book: Book) -> None:
    book = other_book
    await install(book.client, "grows", misbehaving("grows"))
    await book.value("grows.poke()")

    async def grown() -> bool:
        return bool(await book.value("'poke1' in dir(grows)"))

    await until(grown, "the new tool is offered")
    assert await book.value("grows.poke1()") == "call 2"


# The audit log


async def test_each_call_is_a_line_of_the_audit_log_without_its_arguments(server: Server, book: Book) -> None:
    before = len(lines_of(server))
    secret = "the-words-of-a-letter"
    code = f"quick.echo_text({secret!r})\nquick.add(1, 2)\nquick.read('notes://{secret}')\n"
    code += f"try:\n    quick.fail({secret!r})\nexcept ToolError:\n    pass\n"
    code += "try:\n    quick.hold('x', _timeout=0.05)\nexcept ToolTimeout:\n    pass"
    assert not (await book.run(code)).is_error
    assert not (await book.run(f"quick.echo_text({secret!r})")).is_error
    lines = lines_of(server)[before:]
    assert secret not in "".join(lines)
    said = [json.loads(line) for line in lines]
    assert [(each["tool"], each["cell"], each["outcome"]) for each in said] == [
        ("quick.echo-text", 0, "ok"),
        ("quick.add", 0, "ok"),
        ("quick.read", 0, "ok"),
        ("quick.fail", 0, "error"),
        ("quick.hold", 0, "timeout"),
        ("quick.echo-text", 1, "ok"),
    ]
    assert {(each["who"], each["notebook"]) for each in said} == {("local", book.name)}
    assert said[0]["digest"] == said[5]["digest"] and len({each["digest"] for each in said[:4]}) == 4
    assert all(len(each["digest"]) == 16 and each["ms"] >= 0 and each["at"] > "2026" for each in said)


@pytest.mark.parametrize(
    "words",
    [
        "'approve', capability='caps', method='install'",
        "'approve', capability='caps.install', method='x'",
        "'approve', capability='quick', method='add'",
        "'prompt', capability='quick', method='add'",
        "'tool', capability='caps', method='install'",
        "'tool', capability='quick.add', method=''",
    ],
)
async def test_no_forged_message_makes_the_audit_log_tell_a_call_as_made(
    server: Server, book: Book, words: str
) -> None:
    before = len(lines_of(server))
    forged = f"try:\n    caps._known.relay.call({words}, given={{}}, declared='never')\nexcept ToolError as error:\n"
    ran = await book.run(f"{forged}    print('refused:', error)")
    assert "refused:" in text(ran), text(ran)
    [line] = [json.loads(line) for line in lines_of(server)[before:]]
    assert line["outcome"] in ("refused", "gone", "error"), line
    assert line["tool"] == "quick.prompt:add" or line["outcome"] != "error"


async def test_an_approved_call_of_own_code_is_not_told_as_made(server: Server, book: Book) -> None:
    before = len(lines_of(server))
    await book.value("caps._known.relay.call('approve', capability='mine', method='send', declared='never')")
    [line] = [json.loads(line) for line in lines_of(server)[before:]]
    assert (line["tool"], line["outcome"]) == ("mine.send", "approved")


def lines_of(server: Server) -> list[str]:
    """What the audit log says of capabilities."""
    lines = (server.data / "audit.jsonl").read_text().splitlines()
    return [line for line in lines if json.loads(line)["kind"] == "capability"]


# Servers of other projects


async def test_the_reference_server_is_used_as_it_is(other_book: Book) -> None:
    book = other_book
    done = await install(book.client, "every", " ".join(node_program(EVERYTHING_SERVER)))
    assert "get_sum" in done.structured_content["methods"]
    assert "5" in await book.value("every.get_sum(2, 3)")
    assert await book.value("found = every.get_structured_content('Chicago')\nfound.temperature") == 36
    shown = await book.run("every.get_tiny_image()")
    assert [block.type for block in shown.content].count("image") == 1
    assert await book.value("links = [each for each in every.get_resource_links(3) if hasattr(each, 'uri')]\n3") == 3
    assert await book.value("len(links), all(len(each.read()) > 0 for each in links)") == [3, True]
    assert "simple prompt" in await book.value("every.prompt('simple-prompt')[0].content")


async def test_a_folder_is_worked_on_by_the_filesystem_server(other_book: Book, tmp_path: Path) -> None:
    book, place = other_book, tmp_path / "files"
    place.mkdir()
    await install(book.client, "files", " ".join(node_program(FILESYSTEM_SERVER, str(place))))
    code = f"for n in range(5):\n    files.write_file({str(place)!r} + f'/{{n}}.txt', 'x' * n)\n"
    assert not (await book.run(code)).is_error
    assert sorted(each.name for each in place.iterdir()) == [f"{n}.txt" for n in range(5)]
    assert await book.value(f"files.read_text_file({str(place / '3.txt')!r})['content']") == "xxx"
    raised(await book.run("files.read_text_file('/etc/passwd')"), "ToolError", "outside allowed")
