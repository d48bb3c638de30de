"""Where images of live guests lie."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from quire.runtimes.wasm.shelf import shelf
from tests.support.external_programs import missing

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


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quire.runtimes.wasm.host", "wasm-python", str(tmp_path)]
    building = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    place = tmp_path / "building"
    try:
        while building.poll() is None and not list(place.glob("*/program")):
            time.sleep(0.01)
    finally:
        if building.poll() is None:
            os.killpg(building.pid, signal.SIGKILL)
        said = building.communicate()[1].decode()
    if "componentize-py" in said:
        missing("wasm", said)
    assert list(place.glob("*/program")), said
    with shelf(place) as next_one:
        assert list(place.iterdir()) == [next_one]
