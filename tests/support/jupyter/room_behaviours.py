"""What a Jupyter server holds of documents that were open; run in its own process."""

from __future__ import annotations

from tests.support.jupyter.places import Place, seen, sources, until


def held(at: Place) -> list[str]:
    """The rooms of notebooks, and the files that are looked after for them."""
    extension = next(iter(at.serverapp.extension_manager.extension_apps["jupyter_server_ydoc"]))
    rooms = [name for name in extension.ywebsocket_server.rooms if name.startswith("json:notebook:")]
    return [*rooms, *(f"file {each}" for each in extension.file_loaders._FileLoaderMapping__dict)]


async def no_room_is_left(at: Place) -> None:
    await until(lambda: not held(at), "no room is left")


async def three_rooms_are_open(at: Place) -> None:
    assert len(held(at)) == 6


async def room_stays_while_a_person_is_in_it(at: Place) -> None:
    await no_room_is_left(at)
    path = at.server.notebook("a")
    theirs, ours = await at.person.documents.open(path), await at.jupyter.documents.open(path)
    await ours.close()
    await theirs.change("cell-0", source="b")
    again = await at.jupyter.documents.open(path)
    await seen(again, lambda: sources(again) == ["b"])
    await theirs.close()
    await again.change("cell-0", source="c")
    assert len(held(at)) == 2
    await again.close()
    await no_room_is_left(at)
