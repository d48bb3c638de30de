"""The examples verify themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import server_environment
from tests.support.waiting import DEADLINE
from tests.support.wasm.assets import assets_dir

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in EXAMPLES])
def test_an_example_runs_to_its_end(path: Path, data_dir: Path, tmp_path: Path) -> None:
    made = {"assets_dir": assets_dir()} if "wasm-" in path.read_text("utf-8") else {}
    done = subprocess.run(
        [sys.executable, str(path)],
        env=server_environment(data_dir, **made),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,  # a whole program
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["ok"]), done.stdout + done.stderr
