"""Where images of live guests lie."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from quire.runtimes.wasm.shelf import shelf

KILLED = """
import os, sys
from pathlib import Path
from quire.runtimes.wasm.shelf import shelf

with shelf(Path(sys.argv[1])) as folder:
    (folder / "image").write_text("left")
    os._exit(9)
"""


def test_what_a_killed_server_left_is_removed_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    with shelf(tmp_path) as living:
        (living / "image").write_text("mine")
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60)
        assert len(list(tmp_path.glob("*/image"))) == 2
        with shelf(tmp_path) as another:
            assert [path.parent for path in tmp_path.glob("*/image")] == [living]
            assert another.is_dir()
    assert list(tmp_path.iterdir()) == []
