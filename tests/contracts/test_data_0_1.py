"""A data directory that version 0.1 wrote opens in this version, with everything in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.frontends.python import Quire
from quire.settings import load
from tests.support import preloaded
from tests.support.data_0_1 import FIXTURE, KINDS_0_1, describe, unpack
from tests.support.http_users import Users
from tests.support.object_kinds import Kind
from tests.support.servers import call, http_server, text
from tests.support.waiting import DEADLINE

PYTHON_OF_THE_FIXTURE = (3, 11)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("data-0.1"))


@pytest.fixture(scope="module")
async def opened(data_dir: Path) -> AsyncIterator[Quire]:
    async with quire.open(data_dir, kernel_preload="", server_shutdown_stall_seconds=0) as opened:
        yield opened


async def test_notebooks_cells_outputs_and_shares_are_there(tmp_path: Path) -> None:
    expected = json.loads((FIXTURE / "expected.json").read_text())
    assert await describe(unpack(tmp_path)) == expected


@pytest.mark.skipif(sys.version_info[:2] != PYTHON_OF_THE_FIXTURE, reason="Saved functions are for Python 3.11")
@pytest.mark.parametrize("kind", KINDS_0_1, ids=lambda kind: kind.name)
async def test_variable_is_restored(opened: Quire, kind: Kind) -> None:
    notebook = await opened.notebook(kind.name)
    if kind.expected == "kept":
        checked = await notebook.add_cell(kind.check, timeout=60)
        assert checked.state == "SUCCESS", f"{checked.notice}\n{await checked.text()}"
    else:
        used = await notebook.add_cell("it.anything", timeout=60)
        assert "GoneError" in await used.text()
    await notebook.reset()


async def test_named_state_is_restored(opened: Quire) -> None:
    report = await opened.notebook("report")
    await report.restore("before the change")
    checked = await report.add_cell("'total' in globals(), png[1:4]")
    assert await checked.text() == "(False, b'PNG')"


async def test_branch_has_its_own_variables(opened: Quire) -> None:
    branch = await (await opened.notebook("what if")).add_cell("total")
    assert await branch.text() == "2"


async def test_isolated_notebook_keeps_its_policy(opened: Quire) -> None:
    strict = await opened.notebook("strict")
    failed = await strict.add_cell("kept = 3\n1/0")
    assert failed.state == "ERROR"
    assert await (await strict.add_cell("kept")).text() == "1"


async def test_exported_document_is_imported(opened: Quire) -> None:
    imported = await (await opened.notebook("imported")).load(FIXTURE / "report.ipynb")
    original = await (await opened.notebook("report")).cells()
    document = json.loads((FIXTURE / "report.ipynb").read_text())
    assert [cell.source for cell in imported] == ["".join(cell["source"]) for cell in document["cells"]]
    assert [cell.source for cell in imported] == [cell.source for cell in original][: len(imported)]


async def test_token_opens_the_notebook_shared_with_its_user(tmp_path: Path) -> None:
    tokens = json.loads((FIXTURE / "tokens.json").read_text())
    with http_server(unpack(tmp_path), auth="tokens") as (url, _):
        users = Users(url, tmp_path, tokens)
        async with users.client("alice") as alice, users.client("root") as root:
            for client, name in ((alice, "local/report"), (root, "local/strict")):
                answer = await call(client, "list_cells", notebook=name)
                assert not answer.is_error, text(answer)


def test_audit_log_is_read(tmp_path: Path) -> None:
    command = preloaded.quire("audit", "--json", "--limit", "0", "--data-dir", str(unpack(tmp_path)))
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE).stdout
    entries: list[dict[str, Any]] = [json.loads(line) for line in printed.splitlines()]
    assert [entry["tool"] for entry in entries if entry["kind"] == "capability"] == ["quick.add"]
    assert {"create_notebook", "execute", "save_state", "branch_notebook"} <= {entry["tool"] for entry in entries}


def test_settings_file_is_read() -> None:
    settings = load(config=FIXTURE / "quire.toml", environ={})
    server = settings.server
    assert (settings.kernel.cell_timeout_seconds, server.call_wait_seconds, server.shutdown_stall_seconds) == (
        45,
        20,
        10,
    )
    assert settings.sandbox.network == ("pypi.org", "*.pythonhosted.org")
