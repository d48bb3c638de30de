"""The `sandbox` tool set as a client sees it."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from tests.support.processes import alive, processes_of
from tests.support.quick_backend import Quick, install, misbehaving
from tests.support.servers import SharedServers, call, http_client, http_server, stdio_client, text
from tests.support.waiting import until, wait_until
from tests.support.wasm.assets import assets_dir

SET: dict[str, Any] = {"toolsets": "sandbox", "spare_kernels": 0}


async def without_sessions(client: Client[Any]) -> AsyncIterator[Client[Any]]:
    """The client; its sessions are destroyed when the test is over, so that the next one finds none."""
    yield client
    for session in (await call(client, "list_sessions")).structured_content["sessions"]:
        await call(client, "destroy_session", session_id=session["session_id"])


@pytest.fixture
async def client(shared_servers: SharedServers) -> AsyncIterator[Client[Any]]:
    async for connected in without_sessions(await shared_servers.client(assets_dir=assets_dir(), **SET)):
        yield connected


@pytest.fixture
async def impatient(shared_servers: SharedServers) -> AsyncIterator[Client[Any]]:
    """A client of a server that answers before a long run is over."""
    async for connected in without_sessions(await shared_servers.client(assets_dir=assets_dir(), patience=2, **SET)):
        yield connected


@pytest.fixture
async def beside(shared_servers: SharedServers) -> AsyncIterator[Client[Any]]:
    """A client of a server that has other tool sets, too."""
    settings = {**SET, "toolsets": "sandbox,repl,notebook,capabilities"}
    async for connected in without_sessions(await shared_servers.client(assets_dir=assets_dir(), **settings)):
        yield connected


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of the server of `in_folder`. It is there when a test begins; one may remove it."""
    return tmp_path_factory.mktemp("workspace") / "project"


@pytest.fixture
async def in_folder(shared_servers: SharedServers, folder: Path) -> AsyncIterator[Client[Any]]:
    """A client of a server whose sessions all work in one folder."""
    folder.mkdir()
    settings = {"assets_dir": assets_dir(), "workspace": folder, **SET}
    async for connected in without_sessions(await shared_servers.client(**settings)):
        yield connected
    shutil.rmtree(folder, ignore_errors=True)


async def test_code_runs_in_the_clients_own_session_of_each_language(client: Client[Any]) -> None:
    first = await call(client, "execute_code", code="x = 41")
    assert first.structured_content["session_id"] == "python-session" and first.structured_content["success"]
    assert (await call(client, "execute_code", code="x + 1")).structured_content["return_value"] == 42
    other = await call(client, "execute_code", code="typeof x", language="javascript")
    assert (other.structured_content["return_value"], other.structured_content["language"]) == (
        "undefined",
        "javascript",
    )
    await call(client, "execute_code", code="let x = [1, {two: 2}]", language="javascript")
    again = await call(client, "execute_code", code="x", language="javascript")
    assert again.structured_content["return_value"] == [1, {"two": 2}]


async def test_without_a_session_nothing_stays(client: Client[Any]) -> None:
    ran = await call(client, "execute_code", code="x = 1\nopen('f', 'w').write('a')\nx", session_id="none")
    found = ran.structured_content
    assert (found["return_value"], found["session_id"], found["files_changed"]) == (1, None, ["f"])
    gone = await call(client, "execute_code", code="x", session_id="none")
    assert gone.is_error and gone.structured_content["error"]["type"] == "NameError"
    assert (await call(client, "list_sessions")).structured_content["sessions"] == []


async def test_sessions_are_made_listed_and_destroyed_with_files(client: Client[Any]) -> None:
    made = await call(client, "create_session", language="javascript", memory_bytes=2**27)
    name, place = made.structured_content["session_id"], Path(made.structured_content["workspace"])
    assert name == "javascript-1"
    ran = await call(client, "execute_code", code="files.write('kept.txt', 'x'.repeat(10)); 7", session_id=name)
    assert ran.structured_content["files_changed"] == ["kept.txt"] and "files changed: kept.txt" in text(ran)
    (listed,) = (await call(client, "list_sessions")).structured_content["sessions"]
    assert (listed["session_id"], listed["state"], listed["runs"], listed["own"]) == (name, "idle", 1, False)
    info = (await call(client, "get_workspace_info", session_id=name)).structured_content
    assert info["files"] == 1 and info["largest"] == ["kept.txt (10 bytes)"]
    done = await call(client, "destroy_session", session_id=name)
    assert not done.is_error and not place.exists()
    lost = await call(client, "execute_code", code="1", session_id=name)
    assert lost.is_error and "No session is called 'javascript-1'. There are none yet." in text(lost)


@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_a_session_is_there_before_its_first_run(client: Client[Any], language: str) -> None:
    await call(client, "execute_code", code="1", language=language)  # a host is there
    made = await call(client, "create_session", language=language, session_id="ready")
    assert (made.structured_content["state"], made.structured_content["runs"]) == ("idle", 0)
    ran = await call(client, "execute_code", code="1 + 1", session_id="ready")
    assert ran.structured_content["return_value"] == 2 and "notice" not in ran.structured_content


async def test_the_first_run_of_a_session_that_cannot_begin_says_why(in_folder: Client[Any], folder: Path) -> None:
    client = in_folder
    folder.rmdir()
    folder.write_text("no folder")
    made = await call(client, "create_session", session_id="s")
    assert not made.is_error and made.structured_content["state"] == "not started"
    failed = await call(client, "execute_code", code="1", session_id="s")
    assert failed.is_error and "cannot be made" in text(failed)
    folder.unlink()
    assert (await call(client, "execute_code", code="1", session_id="s")).structured_content["return_value"] == 1


@pytest.mark.parametrize("destroy", ["once", "by name"])
async def test_a_folder_that_is_a_persons_is_never_deleted(in_folder: Client[Any], folder: Path, destroy: str) -> None:
    client = in_folder
    (folder / "work.txt").write_text("mine")
    if destroy == "once":
        ran = await call(client, "execute_code", code="open('work.txt').read()", session_id="none")
        assert ran.structured_content["return_value"] == "mine"
    else:
        await call(client, "create_session", session_id="s")
        await call(client, "execute_code", code="1", session_id="s")
        assert "its files stay" in text(await call(client, "destroy_session", session_id="s"))
    assert (await call(client, "list_sessions")).structured_content["sessions"] == []
    assert (folder / "work.txt").read_text() == "mine"


async def test_an_error_has_a_type_a_message_and_guidance(client: Client[Any]) -> None:
    failed = await call(client, "execute_code", code="import numpy_is_not_here")
    assert failed.is_error
    said = failed.structured_content["error"]
    assert said["type"] == "ModuleNotFoundError" and "numpy_is_not_here" in said["message"]
    assert "standard library" in said["guidance"] and said["guidance"] in text(failed)
    late = await call(client, "execute_code", code="while True: pass", timeout=0.5)
    assert late.structured_content["error"]["type"] == "Timeout" and "larger timeout" in text(late)


@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_a_killed_host_costs_what_ran_in_it_and_no_session(client: Client[Any], language: str) -> None:
    keep = {"python": "x = [1]; x.append(x); len(x)", "javascript": "let x = [1]; x.push(x); x.length"}[language]
    ran = await call(client, "execute_code", code=keep, language=language)
    assert ran.structured_content["return_value"] == 2
    await until(lambda: is_protected(client), "a checkpoint is taken")
    kill_hosts()
    again = "x[1] is x" if language == "python" else "x[1] === x"
    found = await call(client, "execute_code", code=again, language=language)
    if found.structured_content["state"] == "CRASHED":  # the server had not noticed yet
        found = await call(client, "execute_code", code=again, language=language)
    assert found.structured_content["return_value"] is True, text(found)


async def test_each_http_session_has_its_own_sandbox_and_others_share_one(data_dir: Path) -> None:
    with http_server(data_dir, assets_dir=assets_dir(), **SET) as (url, _):
        async with http_client(url, mode="legacy") as one, http_client(url, mode="legacy") as two:
            await call(one, "execute_code", code="x = 1")
            await call(two, "execute_code", code="x = 2")
            assert (await call(one, "execute_code", code="x")).structured_content["return_value"] == 1
        async with http_client(url) as three, http_client(url) as four:
            await call(three, "execute_code", code="x = 3")
            assert (await call(four, "execute_code", code="x")).structured_content["return_value"] == 3


async def test_a_session_is_there_after_a_restart(data_dir: Path) -> None:
    for code, value in (("x = 5\nx", 5), ("x + 1", 6)):
        async with stdio_client(data_dir, assets_dir=assets_dir(), **{**SET, "toolsets": "sandbox,repl"}) as client:
            found = await call(client, "execute_code", code=code)
            assert found.structured_content["return_value"] == value, text(found)
            await call(client, "save_state", notebook="python-session")
    assert "Restored from disk" in found.structured_content["notice"]


async def test_runtimes_say_what_they_are(client: Client[Any]) -> None:
    await call(client, "execute_code", code="1")
    await call(client, "execute_code", code="1", language="javascript")
    listed = (await call(client, "list_runtimes")).structured_content["runtimes"]
    assert [each["name"] for each in listed] == ["python", "wasm-python", "wasm-javascript", "jupyter"]
    assert [each["why_not"] for each in listed[:3]] == ["", "", ""]
    assert "no Jupyter server is connected" in listed[3]["why_not"]
    assert "Python 3.14" in listed[1]["version"] and "QuickJS" in listed[2]["version"]


async def test_a_notebook_of_another_runtime_is_no_session(beside: Client[Any]) -> None:
    await call(beside, "create_notebook", name="book")
    refused = await call(beside, "execute_code", code="1", session_id="book")
    assert refused.is_error and "runtime python, no sandbox session" in text(refused)
    refused = await call(beside, "create_notebook", name="b", runtime="wasm-python", shell="ipython")
    assert refused.is_error and "shell is for the runtime python" in text(refused)


class Person:
    """Says yes, and what they were asked is known."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, message: str, response_type: Any, params: Any, context: Any) -> Any:
        self.asked.append(message)
        return {"approve": True}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_person_is_asked_about_a_call_that_needs_it(data_dir: Path, tmp_path: Path, mode: str) -> None:
    person, quick = Person(), Quick(journal=tmp_path / "journal")
    settings = {**SET, "toolsets": "sandbox,capabilities"}
    async with stdio_client(data_dir, mode=mode, person=person, assets_dir=assets_dir(), **settings) as client:
        await install(client, "quick", quick.command)
        for number, language in enumerate(("python", "javascript"), start=1):
            before = "open('f', 'w').close()\n" if language == "python" else "files.write('f', '')\n"
            wipe = {"python": "str(quick.wipe('/all'))", "javascript": "await quick.wipe({path: '/all'})"}[language]
            ran = await call(client, "execute_code", code=before + wipe, language=language)
            assert ran.structured_content["return_value"] == "wiped /all", text(ran)
            assert len(person.asked) == number and 'quick.wipe(path="/all")' in person.asked[-1]
            once = await call(client, "execute_code", code=wipe, language=language, session_id="none")
            assert once.is_error and len(person.asked) == number and len(quick.calls("wipe")) == number
            assert once.structured_content["error"]["type"] == "ApprovalDenied"
            assert 'the session is not "none"' in text(once)


async def test_the_answer_for_a_run_that_goes_on_names_tools_of_this_set(impatient: Client[Any]) -> None:
    client = impatient
    code = "print('begun')\nimport time\ntime.sleep(1000)"
    going = text(await call(client, "execute_code", code=code, timeout=1000))
    found = re.search(r"It goes on: (notebook://\S+) shows it, destroy_session ends it\.", going)
    assert found, going

    async def begun() -> bool:
        return "begun" in (await client.read_resource(found[1]))[0].text

    await until(begun, "the run has printed")
    assert "RUNNING" in (await client.read_resource(found[1]))[0].text
    behind = text(await call(client, "execute_code", code="1"))
    assert "Call again later: what you run then comes after it." in behind
    await client.call_tool("destroy_session", {"session_id": "python-session"})
    assert text(await call(client, "execute_code", code="1 + 1")).startswith("2\n")


CAUGHT = {
    "python": "try:\n    frail.poke()\nexcept CapabilityGone as error:\n    said = str(error)\nsaid",
    "javascript": "let said; try { await frail.poke() } catch (error) { said = error.message } said",
}


@pytest.mark.parametrize("language", CAUGHT)
async def test_what_a_lost_backend_printed_is_in_the_result_and_not_told_to_code(
    beside: Client[Any], language: str
) -> None:
    await install(beside, "frail", misbehaving("dies", "1"))
    done = (await call(beside, "execute_code", code=CAUGHT[language], language=language)).structured_content
    assert "Its server" in done["return_value"], done
    assert "/" not in done["return_value"] and "out of memory" not in done["return_value"]
    assert "out of memory" in done["stderr"]
    await call(beside, "uninstall_capability", name="frail")


async def test_a_function_that_a_session_publishes_is_a_tool_while_it_lasts(client: Client[Any]) -> None:
    async def area() -> bool:
        return "area" in {tool.name for tool in await client.list_tools()}

    code = "side = 7\n@capability(expose=True)\ndef area(w: int) -> int:\n    return w * side"
    await call(client, "execute_code", code=code)
    assert await area()
    assert (await call(client, "area", w=3)).structured_content["return_value"] == 21
    await until(lambda: is_protected(client), "a checkpoint is taken")
    kill_hosts()
    again = await call(client, "area", w=3)
    if again.structured_content["state"] == "CRASHED":  # the server had not noticed yet
        again = await call(client, "area", w=3)
    assert again.structured_content["return_value"] == 21 and await area()
    await call(client, "execute_code", code="caps.unregister('area')")
    assert not await area()
    await call(client, "execute_code", code=code)
    await call(client, "destroy_session", session_id="python-session")
    assert not await area()


async def test_a_timeout_gives_its_advice_once(client: Client[Any]) -> None:
    late = await call(client, "execute_code", code="import time\ntime.sleep(60)", timeout=0.5)
    assert text(late).count("larger timeout") == 1, text(late)
    hard = await call(client, "execute_code", code="while True: pass", timeout=0.5)
    assert text(hard).count("larger timeout") == 1, text(hard)


async def is_protected(client: Client[Any]) -> bool:
    (session,) = (await call(client, "list_sessions")).structured_content["sessions"]
    return not session["protection"].startswith("unprotected")


def is_host(pid: int) -> bool:
    with suppress(OSError):
        return b"quire.runtimes.wasm.host" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False  # it is gone


def kill_hosts() -> None:
    """Kill every process below this one in which WebAssembly runs, and wait until they are gone."""
    hosts = [pid for pid in processes_of(os.getpid()) if is_host(pid)]
    assert hosts
    for pid in hosts:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, hosts)), "the hosts are gone")


async def test_a_call_that_waits_for_its_turn_has_not_failed(impatient: Client[Any]) -> None:
    told: list[str | None] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    first = await call(impatient, "execute_code", code="import time\ntime.sleep(1000)", timeout=1000)
    assert (first.structured_content["state"], first.is_error) == ("RUNNING", False)
    second = await impatient.call_tool("execute_code", {"code": "2"}, progress_handler=heard)
    assert "waiting to begin" in told
    assert (second.structured_content["state"], second.is_error) == ("IDLE", False)
    assert "error" not in second.structured_content and "It waits for its turn" in text(second)


async def test_sessions_with_another_language_or_a_bad_name_are_refused(client: Client[Any]) -> None:
    await call(client, "create_session", session_id="mine")
    other = await call(client, "execute_code", code="let a = 1", language="javascript", session_id="mine")
    assert other.is_error and "Session 'mine' runs python, not javascript. Nothing was run." in text(other)
    refused = other.structured_content
    assert (refused["state"], refused["session_id"], refused["error"]["type"]) == ("REFUSED", "mine", "Refused")
    assert refused["error"]["message"] == text(other) and refused["error"]["guidance"]
    assert (await call(client, "execute_code", code="1", session_id="mine")).structured_content["success"]
    for name in ("none", ""):
        made = await call(client, "create_session", session_id=name)
        assert made.is_error and f"A session cannot be called {name!r}" in text(made)


@pytest.mark.parametrize("often", ["time.sleep(0.001)", "await asyncio.sleep(0.001)", "print('.', end='')"])
async def test_a_timeout_keeps_variables_of_code_that_sleeps_or_prints(client: Client[Any], often: str) -> None:
    code = f"import asyncio, time\nkept = 41\nwhile True: {often}"
    stopped = await call(client, "execute_code", code=code, timeout=2)
    assert stopped.structured_content["state"] == "TIMEOUT" and "Variables are kept." in text(stopped)
    assert (await call(client, "execute_code", code="kept + 1")).structured_content["return_value"] == 42


async def test_functions_of_javascript_are_said_in_its_own_words(beside: Client[Any]) -> None:
    code = "function plain(a) {}\nclass Kind {}\nasync function later() {}"
    await call(beside, "execute_code", code=code, language="javascript")
    lines = text(await call(beside, "state", notebook="javascript-session")).splitlines()
    assert {"class Kind", "async function later()"} <= {line.strip() for line in lines}
    assert not any(line.startswith("def Kind") for line in lines)
