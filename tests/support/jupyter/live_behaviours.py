"""What a document does that others edit meanwhile. Each function is one behaviour."""

from __future__ import annotations

import asyncio
import random

from pycrdt import Awareness, Doc

from quire.clients.jupyter.rooms import protocol
from quire.clients.jupyter.rooms.remote_rooms import RemoteRooms
from quire.clients.jupyter.server.http_client import HttpClient
from tests.support.jupyter.places import Place, seen, sources, until


async def edits_are_seen_in_both_directions(at: Place) -> None:
    path = at.server.notebook("a")
    ours, theirs = await at.jupyter.documents.open(path), await at.person.documents.open(path)
    await ours.change("cell-0", source="ab")
    await seen(theirs, lambda: sources(theirs) == ["ab"])
    await theirs.insert(1, [{"cell_type": "markdown", "source": "hi", "id": "note"}])
    await seen(ours, lambda: sources(ours) == ["ab", "hi"])
    assert [cell["id"] for cell in ours.cells()] == ["cell-0", "note"]
    assert ours.version("cell-0") == 2 and theirs.version("cell-0") == 2


async def output_and_running_state_are_shared_while_a_cell_runs(at: Place) -> None:
    path = at.server.notebook("a")
    ours, theirs = await at.jupyter.documents.open(path), await at.person.documents.open(path)
    await ours.end_run("cell-0", 1)
    await seen(theirs, lambda: theirs.cells()[0]["execution_count"] == 1)
    await ours.begin_run("cell-0")
    await seen(theirs, lambda: state(theirs) == "running" and theirs.cells()[0]["execution_count"] is None)
    text = ""
    for line in ("one\n", "zwölf\n", "😀\n"):
        text += line
        wanted = [{"output_type": "stream", "name": "stdout", "text": text}]
        await ours.set_outputs("cell-0", wanted)
        await seen(theirs, lambda wanted=wanted: theirs.cells()[0]["outputs"] == wanted)
    await ours.end_run("cell-0", 2)
    await seen(theirs, lambda: state(theirs) == "idle" and theirs.cells()[0]["execution_count"] == 2)


def state(document: object) -> object:
    return document._replica.shared._cells[0]["execution_state"]  # type: ignore[attr-defined]  # no reader needs it


async def text_that_grew_is_appended_to_in_place(at: Place) -> None:
    path = at.server.notebook("a")
    ours, theirs = await at.jupyter.documents.open(path), await at.person.documents.open(path)
    await ours.set_outputs("cell-0", [{"output_type": "stream", "name": "stdout", "text": "1"}])
    await seen(theirs, lambda: theirs.cells()[0]["outputs"])
    text = theirs._replica.shared._cells[0]["outputs"][0]["text"]  # what a page holds on to
    await ours.set_outputs("cell-0", [{"output_type": "stream", "name": "stdout", "text": "12"}])
    await seen(theirs, lambda: str(text) == "12")


async def typing_in_the_same_cell_merges_with_an_edit(at: Place) -> None:
    path = at.server.notebook("import os\n\nprint('hello')\n")
    ours, theirs = await at.jupyter.documents.open(path), await at.person.documents.open(path)
    shared = theirs._replica.shared
    for place in range(20):  # a person types at the end, letter by letter, while the agent edits above
        with shared.edit() as updates:
            text = shared._cells[0]["source"]
            text += "abcdefghijklmnopqrst"[place]
        for update in updates:
            await send_update(theirs, update)
        if place % 5 == 0:
            now = ours.cells()[0]["source"]
            await ours.change("cell-0", source=now.replace("import os\n", f"import a{place}\nimport os\n", 1))
    await seen(ours, lambda: ours.cells()[0]["source"].endswith("abcdefghijklmnopqrst"))
    await seen(theirs, lambda: sources(theirs) == sources(ours))
    source = ours.cells()[0]["source"]
    assert source == "import a0\nimport a5\nimport a10\nimport a15\nimport os\n\nprint('hello')\nabcdefghijklmnopqrst"


async def send_update(document: object, update: bytes) -> None:
    from pycrdt import create_update_message

    await document._replica._connection.send(create_update_message(update))  # type: ignore[attr-defined]  # as a page does


async def random_edits_of_several_clients_converge(at: Place) -> None:
    path = at.server.notebook("a", "b", "c")
    every = [await at.jupyter.documents.open(path), await at.person.documents.open(path)]
    dice = random.Random(7)

    async def edit(document: object, name: str) -> None:
        for turn in range(25):
            cells = document.cells()  # type: ignore[attr-defined]
            cell = dice.choice(cells)["id"] if cells else None
            match dice.randrange(4):
                case 0 if len(cells) > 2:
                    await document.delete(cell)  # type: ignore[attr-defined]
                case 1:
                    await document.insert(dice.randrange(5), [{"source": f"{name}{turn}"}])  # type: ignore[attr-defined]
                case 2 if cell:
                    await document.change(cell, source=f"{name} {turn} é😀")  # type: ignore[attr-defined]
                case 3 if cell:
                    await document.set_outputs(cell, [{"output_type": "stream", "name": "stdout", "text": name}])  # type: ignore[attr-defined]
            await asyncio.sleep(0)

    await asyncio.gather(edit(every[0], "x"), edit(every[1], "y"))
    await every[0].insert(0, [{"source": "last of ours"}])
    await every[1].insert(0, [{"source": "last of theirs"}])
    wanted = {"last of ours", "last of theirs"}
    for document in every:
        await seen(document, lambda document=document: wanted <= set(sources(document)))
    assert every[0].cells() == every[1].cells()
    assert len({cell["id"] for cell in every[0].cells()}) == len(every[0].cells())


async def agent_is_listed_by_name(at: Place) -> None:
    path = at.server.notebook("a")
    theirs = await at.person.documents.open(path)
    ours = await at.jupyter.documents.open(path)
    awareness = theirs._replica._presence._awareness

    def names() -> set[str]:
        return {state.get("user", {}).get("name") for state in awareness.states.values() if state}

    async with asyncio.timeout(60):
        while not {"Quire", "Ann"} <= names():
            await asyncio.sleep(0.01)
        await ours.close()
        while "Quire" in names():
            await asyncio.sleep(0.01)


async def cursor_of_the_agent_is_shared(at: Place) -> None:
    path = at.server.notebook("héllo", "b")
    theirs = await at.person.documents.open(path)
    ours = await at.jupyter.documents.open(path)
    awareness = theirs._replica._presence._awareness
    shared = theirs._replica.shared

    def has_cursor_in(cell: str) -> bool:
        states = [state for state in awareness.states.values() if state and state["user"]["name"] == "Quire"]
        return any(
            cursor["head"] == shared.source(cell).sticky_index(0).to_json()
            for state in states
            for cursor in state.get("cursors", ())
        )

    await ours.change("cell-1", source="both")
    await until(lambda: has_cursor_in("cell-1"))
    await ours.begin_run("cell-0")
    await until(lambda: has_cursor_in("cell-0") and not has_cursor_in("cell-1"))
    (new,) = await ours.insert(0, [{"cell_type": "code", "source": "new"}])
    await seen(theirs, lambda: shared.find_index(new) is not None)
    await until(lambda: has_cursor_in(new))
    await ours.insert(0, [{"cell_type": "code", "source": ""}])
    await until(lambda: not has_cursor_in(new))


async def the_agent_is_listed_with_its_open_documents(at: Place) -> None:
    path, other = at.server.notebook("a"), at.server.notebook("b")
    page = await RemoteRooms(HttpClient(at.server.url, at.server.token)).connect_collaborators()
    awareness = Awareness(Doc())

    async def listed(paths: list[str]) -> None:
        while paths != [
            path
            for state in awareness.states.values()
            if state and state["user"]["name"] == "Quire"
            for path in state["documents"]
        ]:
            message = protocol.parse(await page.receive())
            if isinstance(message, protocol.AwarenessUpdate):
                awareness.apply_awareness_update(message.update, "remote")

    async with asyncio.timeout(60):
        first = await at.jupyter.documents.open(path)
        await listed([path])
        second = await at.jupyter.documents.open(other)
        await listed([path, other])
        await first.close()
        await listed([other])
        await second.close()
        await listed([])
    await page.close()


async def what_is_saved_is_in_the_file_each_time(at: Place) -> None:
    path = at.server.notebook("a")
    document = await at.jupyter.documents.open(path)
    for turn in range(150):  # more than one byte of a save's number holds
        if turn % 10 == 0:
            await document.change("cell-0", source=f"{turn}")
        await document.save()
        assert "".join(at.server.saved(path)["cells"][0]["source"]) == f"{turn - turn % 10}"
