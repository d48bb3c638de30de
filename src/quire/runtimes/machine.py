"""The available memory: of the machine or of this process's cgroup, whichever is less."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from quire.core.ports.kernel import Memory

_MEMINFO = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+)", re.MULTILINE)
_CACHE = re.compile(r"^(?:total_)?inactive_file (\d+)", re.MULTILINE)
_CGROUP_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))  # of v2, of v1


class LinuxMachine:
    def __init__(self, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc = proc
        self._cgroups = cgroups

    def memory(self) -> Memory:
        """The tightest limit. Unlimited where nothing can be read."""
        candidates = [Memory(total=1 << 62, available=1 << 62)]
        with contextlib.suppress(OSError, KeyError):
            text = (self._proc / "meminfo").read_text("utf-8")
            kib = {name: int(number) * 1024 for name, number in _MEMINFO.findall(text)}
            candidates.append(Memory(total=kib["MemTotal"], available=kib["MemAvailable"]))
        for folder in self._folders():
            with contextlib.suppress(OSError, ValueError):
                candidates.append(_limited(folder))
        return min(candidates, key=lambda memory: memory.available)

    def _folders(self) -> Iterator[Path]:
        """This process's cgroup and its parents, of either version. In a container its root is the topmost."""
        with contextlib.suppress(OSError):
            for line in (self._proc / "self/cgroup").read_text("utf-8").splitlines():
                _, controllers, path = line.split(":", 2)
                if controllers and "memory" not in controllers.split(","):
                    continue
                root = self._cgroups / "memory" if controllers else self._cgroups
                for folder in (Path(path), *Path(path).parents):
                    yield root / str(folder).lstrip("/")


def _limited(folder: Path) -> Memory:
    """Raises ValueError or OSError where there is no limit."""
    for limit_file, usage_file in _CGROUP_FILES:
        if (folder / limit_file).exists():
            total, used = int((folder / limit_file).read_text("utf-8")), int((folder / usage_file).read_text("utf-8"))
            cache = _CACHE.search((folder / "memory.stat").read_text("utf-8"))
            return Memory(total=total, available=max(0, total - used + (int(cache[1]) if cache else 0)))
    raise ValueError(folder)
