"""The official MCP conformance suite against Quire's transport and middleware."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import __main__ as conformance
from tests.support.external_programs import missing

pytestmark = pytest.mark.soak(sample=True)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not conformance.suite():
        missing("the MCP conformance suite", "tools/install-node-programs installs it")
    with conformance.server(tmp_path_factory.mktemp("conformance") / "data") as address:
        yield address


@pytest.mark.parametrize("revision", conformance.REVISIONS)
def test_quire_does_all_that_the_protocol_requires_of_a_server(url: str, revision: str, tmp_path: Path) -> None:
    done = conformance.run(conformance.suite(), url, revision, tmp_path)
    checks = [check for file in tmp_path.rglob("checks.json") for check in json.loads(file.read_text())]
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert sum(check["status"] == "SUCCESS" for check in checks) >= 60  # the suite did look
