"""The quick backend as tests use it: how it is installed, what it heard, and which of its processes run."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastmcp import Client

from tests.support.backends import BACKENDS
from tests.support.processes import alive
from tests.support.servers import call, text
from tests.support.waiting import reached, wait_until

GOOD = shlex.join([sys.executable, str(BACKENDS / "good.py")])


def misbehaving(*mode: str) -> str:
    return shlex.join([sys.executable, str(BACKENDS / "misbehaving.py"), *mode])


@dataclass(frozen=True, kw_only=True)
class Quick:
    """One installation of it, known by its journal."""

    journal: Path

    @property
    def command(self) -> str:
        return shlex.join([sys.executable, str(BACKENDS / "quick.py"), str(self.journal)])

    def lines(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def calls(self, tool: str = "") -> list[dict[str, Any]]:
        """The arguments of each call of that tool."""
        said = [line.split(" ", 2) for line in self.lines() if line.startswith("called ")]
        return [json.loads(given) for _, name, given in said if name == tool or not tool]

    def cancelled(self) -> list[str]:
        return [line.split(" ", 1)[1] for line in self.lines() if line.startswith("cancelled ")]

    def pids(self) -> list[int]:
        """Of every process it ever was."""
        return [int(line.split()[1]) for line in self.lines() if line.startswith("started ")]

    def running(self) -> list[int]:
        return [pid for pid in self.pids() if alive(pid)]

    async def is_called(self, tool: str, times: int = 1) -> None:
        await reached(lambda: len(self.calls(tool)) >= times, f"the backend hears of {times} calls of {tool}")

    async def is_told_to_stop(self, *names: str) -> None:
        """With the calls of these names, which it held."""
        await reached(lambda: sorted(self.cancelled()) == sorted(names), f"{names} are cancelled at the backend")

    def is_over(self) -> None:
        wait_until(lambda: not self.running(), "no process of the backend runs")


async def install(client: Client[Any], name: str, server_command: str, **more: Any) -> Any:
    """Install it, which works."""
    done = await call(client, "install_capability", name=name, server_command=server_command, **more)
    assert not done.is_error, text(done)
    return done


async def installed(client: Client[Any], notebook: str | None = None) -> dict[str, str]:
    """How each capability is, by its name."""
    listed = (await call(client, "state", notebook=notebook)).structured_content["capabilities"]
    return dict(line.split(": ", 1) for line in listed)
