"""What of the machine a host process may reach, and which walls it has to have: told to it when it is started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quire.core.errors import InvalidRequest
from quire.core.limits.sandbox_layers import required_layers
from quire.core.model import Mount

LAYERS = ("rlimits", "capabilities", "no_new_privs", "landlock", "seccomp")
"""Of those that kernels have, the ones a process can be put under that holds guests of many notebooks."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Landlock cannot be widened: a host has to reach the workspaces of guests that come later, too."""

    sandbox: str  # the setting
    workspaces: tuple[Path, ...]  # all that guests work in lies below one of these
    mounts: tuple[Mount, ...] = ()

    def words(self, images: Path) -> str:
        """As the host is told them; `images` are those of its owner. Makes the folders, since what is not there
        cannot be reached later."""
        for folder in (*self.workspaces, images):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        written = [str(images), *map(str, self.workspaces), *(each.path for each in self.mounts if each.writable)]
        read = [each.path for each in self.mounts if not each.writable]
        return json.dumps({"up": self.sandbox != "off", "layers": LAYERS, "readable": read, "writable": written})

    def check(self, layers: Mapping[str, str]) -> None:
        """Raises InvalidRequest where one does not stand that the setting insists on."""
        lacking = [f"{name} ({layers[name]})" for name in required_layers(self.sandbox) if layers.get(name)]
        if lacking:
            raise InvalidRequest(
                "No sandbox was started: the setting sandbox.mode requires what this machine does not give: "
                f"{'; '.join(lacking)}. `quire doctor` shows every layer."
            )
