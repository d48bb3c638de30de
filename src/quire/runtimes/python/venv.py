"""An environment of a notebook's own, in its workspace: what it installs stays there and is there again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread

from quire.core.errors import Failed

WORD = "venv"
"""What a notebook names as its python to have one."""

_FOLDER = ".venv"
_MAKE = 120.0  # seconds


async def interpreter(workspace: str, base: str) -> str:
    """Its Python, with the environment made where there is none: by uv where that is installed."""
    folder = Path(workspace) / _FOLDER
    python = folder / "bin" / "python"
    if not await anyio.Path(python).exists():
        uv = find_uv()
        command = [uv, "venv", "--quiet", "--python", base] if uv else [base, "-m", "venv"]
        await anyio.to_thread.run_sync(_make, [*command, str(folder)])
    return str(python)


def find_uv() -> str | None:
    """Where it is on the path, or beside the Python that runs this."""
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))


def _make(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_MAKE, stdin=subprocess.DEVNULL)
    except subprocess.CalledProcessError as error:
        words = error.stderr.decode("utf-8", "replace").strip()[-500:]
        raise Failed(f"The notebook's environment could not be made ({command[0]}): {words}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"The notebook's environment could not be made: {error}.") from error
