"""What every document does, however the Jupyter server is reached. Each function is one behaviour."""

from __future__ import annotations

import asyncio

import pytest

from quire.clients.jupyter.ports import CellChanged, JupyterError, Missing
from tests.support.jupyter.places import Place, seen, sources


async def cells_are_read_as_nbformat_writes_them(at: Place) -> None:
    document = await at.jupyter.documents.open(at.server.notebook("1 + 1", "é = '😀'"))
    first, second = document.cells()
    assert (first["id"], first["cell_type"], first["source"]) == ("cell-0", "code", "1 + 1")
    assert (first["outputs"], first["execution_count"]) == ([], None)
    assert second["source"] == "é = '😀'"
    assert document.metadata()["kernelspec"]["name"] == "python3"
    assert document.live is at.live


async def an_inserted_cell_gets_an_id_and_is_in_the_file_when_saved(at: Place) -> None:
    path = at.server.notebook("a", "b")
    document = await at.jupyter.documents.open(path)
    [new] = await document.insert(1, [{"cell_type": "markdown", "source": "# x", "id": "mine"}])
    [twice] = await document.insert(-1, [{"cell_type": "code", "source": "c", "id": "mine"}])
    await document.save()
    saved = at.server.saved(path)["cells"]
    assert [("".join(cell["source"]), cell["id"]) for cell in saved] == [
        ("a", "cell-0"),
        ("# x", "mine"),
        ("b", "cell-1"),
        ("c", twice),
    ]
    assert new == "mine" and twice != "mine"


async def a_cell_is_deleted_moved_and_changed_by_its_id(at: Place) -> None:
    path = at.server.notebook("a", "b", "c", "d")
    document = await at.jupyter.documents.open(path)
    await document.delete("cell-1")
    await document.move("cell-3", 0)
    await document.change("cell-0", source="A", kind="markdown", metadata={"tags": ["x"]})
    assert sources(document) == ["d", "A", "c"]
    await document.save()
    saved = at.server.saved(path)["cells"]
    assert [cell["id"] for cell in saved] == ["cell-3", "cell-0", "cell-2"]
    assert saved[1]["cell_type"] == "markdown" and saved[1]["metadata"]["tags"] == ["x"]
    assert "outputs" not in saved[1]


async def version_grows_only_with_changes_of_the_source(at: Place) -> None:
    document = await at.jupyter.documents.open(at.server.notebook("a", "b"))
    assert document.version("cell-0") == 1
    await document.change("cell-0", source="aa")
    await document.change("cell-0", source="aaa")
    await document.change("cell-0", source="aaa")
    await document.begin_run("cell-0")
    await document.set_outputs("cell-0", [{"output_type": "stream", "name": "stdout", "text": "x"}])
    await document.end_run("cell-0", 1)
    await document.move("cell-0", 1)
    await document.change("cell-0", metadata={"tags": []})
    assert (document.version("cell-0"), document.version("cell-1")) == (3, 1)


async def change_of_an_old_version_is_refused_with_the_current_cell(at: Place) -> None:
    path = at.server.notebook("a")
    document = await at.jupyter.documents.open(path)
    person = await at.person.documents.open(path)
    await person.change("cell-0", source="theirs")
    if at.live:
        await seen(document, lambda: sources(document) == ["theirs"])
    with pytest.raises(CellChanged, match="version 2, not 1") as caught:
        await document.change("cell-0", source="ours", expected=1)
    assert caught.value.cell["source"] == "theirs"
    assert sources(document) == ["theirs"]
    await document.change("cell-0", source="both", expected=2)
    assert sources(document) == ["both"]


async def what_others_do_in_other_cells_is_kept(at: Place) -> None:
    path = at.server.notebook("a", "b")
    document = await at.jupyter.documents.open(path)
    person = await at.person.documents.open(path)
    await person.change("cell-0", source="theirs")
    await person.insert(2, [{"cell_type": "code", "source": "new"}])
    await document.change("cell-1", source="ours")
    if at.live:
        await seen(document, lambda: len(document.cells()) == 3 and sources(document)[0] == "theirs")
    await document.save()
    assert ["".join(cell["source"]) for cell in at.server.saved(path)["cells"]] == ["theirs", "ours", "new"]


async def a_run_shows_its_outputs_and_its_count(at: Place) -> None:
    path = at.server.notebook("print(1)")
    document = await at.jupyter.documents.open(path)
    await document.begin_run("cell-0")
    stream = {"output_type": "stream", "name": "stdout", "text": "1\n"}
    await document.set_outputs("cell-0", [stream])
    await document.set_outputs("cell-0", [{**stream, "text": "1\n2\n"}])
    result = {
        "output_type": "execute_result",
        "data": {"text/plain": "7", "application/json": {"a": [1, 2.5]}},
        "metadata": {},
        "execution_count": 3,
    }
    await document.set_outputs("cell-0", [result], start=1)
    await document.end_run("cell-0", 3)
    [cell] = document.cells()
    assert cell["outputs"] == [{**stream, "text": "1\n2\n"}, result]
    assert cell["execution_count"] == 3
    await document.save()
    assert at.server.saved(path)["cells"][0]["execution_count"] == 3
    await document.begin_run("cell-0")
    assert document.cells()[0]["outputs"] == [] and document.cells()[0]["execution_count"] is None


async def fewer_outputs_replace_more_outputs(at: Place) -> None:
    document = await at.jupyter.documents.open(at.server.notebook("x"))
    streams = [{"output_type": "stream", "name": name, "text": "a"} for name in ("stdout", "stderr", "stdout")]
    await document.set_outputs("cell-0", streams)
    await document.set_outputs("cell-0", [{**streams[1], "text": "other"}], start=1)
    assert document.cells()[0]["outputs"] == [streams[0], {**streams[1], "text": "other"}]


async def a_new_notebook_is_empty_with_its_folders_and_its_kernel(at: Place) -> None:
    folder = at.server.notebook("x").removesuffix(".ipynb")
    document = await at.jupyter.documents.create(f"{folder}/deep/new.ipynb", "python3")
    assert document.cells() == []
    assert document.metadata()["kernelspec"]["name"] == "python3"
    await document.insert(0, [{"cell_type": "code", "source": "1"}])
    await document.save()
    assert ["".join(cell["source"]) for cell in at.server.saved(f"{folder}/deep/new.ipynb")["cells"]] == ["1"]
    [entry] = await at.jupyter.documents.list_folder(f"{folder}/deep")
    assert (entry.path, entry.kind) == (f"{folder}/deep/new.ipynb", "notebook") and entry.modified
    with pytest.raises(JupyterError, match="already"):
        await at.jupyter.documents.create(f"{folder}/deep/new.ipynb")
    with pytest.raises(Missing, match="python3"):
        await at.jupyter.documents.create(f"{folder}/other.ipynb", "fortran")


async def missing_invalid_and_outside_paths_are_refused(at: Place) -> None:
    (at.server.root / "words.txt").write_text("words")
    (at.server.root / "broken.ipynb").write_text("{")
    (at.server.root / "folder").mkdir(exist_ok=True)
    documents = at.jupyter.documents
    with pytest.raises(Missing, match=r"'nowhere\.ipynb' was not found.*list_files.*mode=\"create\""):
        await documents.open("nowhere.ipynb")
    with pytest.raises(JupyterError, match="no notebook but a file"):
        await documents.open("words.txt")
    with pytest.raises(JupyterError, match="no notebook but a directory"):
        await documents.open("folder")
    with pytest.raises(JupyterError):
        await documents.open("broken.ipynb")
    for path in ("../x.ipynb", "a/../../x.ipynb", "a\\..\\x.ipynb", "x\0.ipynb"):
        with pytest.raises(JupyterError, match=r"outside|may have"):
            await documents.open(path)
        with pytest.raises(JupyterError, match=r"outside|may have"):
            await documents.create(path)
    with pytest.raises(Missing, match=r"'nowhere' was not found.*list_files shows what there is\.$"):
        await documents.list_folder("nowhere")
    with pytest.raises(Missing):
        await documents.list_folder("words.txt")


async def repaired_file_can_be_opened(at: Place) -> None:
    path = at.server.notebook("kept")
    whole = (at.server.root / path).read_text()
    (at.server.root / path).write_text("{")
    for _ in range(2):
        with pytest.raises(JupyterError):
            await at.jupyter.documents.open(path)
    (at.server.root / path).write_text(whole)
    document = await at.jupyter.documents.open(path)
    assert sources(document) == ["kept"]
    await document.change("cell-0", source="changed")
    await document.save()
    assert "".join(at.server.saved(path)["cells"][0]["source"]) == "changed"


async def missing_cell_is_an_error(at: Place) -> None:
    document = await at.jupyter.documents.open(at.server.notebook("a"))
    for call in (
        document.delete("x"),
        document.move("x", 0),
        document.change("x", source=""),
        document.begin_run("x"),
        document.set_outputs("x", []),
        document.end_run("x", 1),
    ):
        with pytest.raises(Missing, match="no cell 'x'"):
            await call


async def many_edits_at_once_are_all_kept(at: Place) -> None:
    path = at.server.notebook("a")
    document = await at.jupyter.documents.open(path)
    again = await at.jupyter.documents.open(path)
    await asyncio.gather(
        *(each.insert(0, [{"cell_type": "code", "source": f"{n}"}]) for n in range(10) for each in (document, again))
    )
    await document.save()
    saved = ["".join(cell["source"]) for cell in at.server.saved(path)["cells"]]
    assert sorted(saved) == sorted(["a", *(str(n) for n in range(10) for _ in range(2))])


async def a_document_closed_twice_is_closed_and_others_go_on(at: Place) -> None:
    path = at.server.notebook("a")
    one, other = await at.jupyter.documents.open(path), await at.jupyter.documents.open(path)
    await one.close()
    await one.close()
    await other.change("cell-0", source="b")
    assert sources(other) == ["b"]
    await other.close()
