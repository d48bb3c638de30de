"""Choose the sandbox layers of kernels from the machine's features and the setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire.core.errors import InvalidRequest
from quire.core.limits.sandbox_layers import LAYERS, required_layers
from quire.core.model import Layer

_NAMESPACES = ("user", "mount", "pid", "net", "ipc")


@dataclass(frozen=True, kw_only=True)
class MachineFeatures:
    """What was tested: for each feature "" if it works, or why not."""

    cgroup: str = ""
    namespaces: str = ""
    uid: str = ""
    seccomp: str = ""
    landlock: int = 0  # its version; 0 if missing

    @classmethod
    def from_probe(cls, features: Mapping[str, Any], cgroup: str) -> MachineFeatures:
        """From the worker's test in its own interpreter."""
        return cls(
            cgroup=cgroup,
            namespaces=str(features["namespaces"]),
            uid=str(features["uid"]),
            seccomp=str(features["seccomp"]),
            landlock=int(features["landlock"]),
        )


@dataclass(frozen=True)
class Plan:
    layers: tuple[Layer, ...]
    landlock: int = 0

    def has(self, name: str) -> bool:
        return any(layer.name == name and not layer.why_not for layer in self.layers)

    @property
    def any_active(self) -> bool:
        return any(not layer.why_not for layer in self.layers)

    @property
    def worker_layers(self) -> list[str]:
        """The layers that the worker applies to itself when it enters."""
        names = ("mount", "rlimits", "capabilities", "no_new_privs", "landlock", "seccomp")
        return [name for name in names if self.has(name)]


def plan_layers(features: MachineFeatures, setting: str) -> Plan:
    """`setting` is auto, off, require:LAYERS or require:all. Raises InvalidRequest if a required layer is missing."""
    if setting == "off":
        return Plan(tuple(Layer(name, "the setting sandbox.mode is off") for name in LAYERS))
    missing = {
        "cgroup": features.cgroup,
        **dict.fromkeys(_NAMESPACES, features.namespaces),
        "uid": features.uid,
        "landlock": "" if features.landlock else "this system has no Landlock",
        "seccomp": features.seccomp,
    }
    plan = Plan(tuple(Layer(name, missing.get(name, "")) for name in LAYERS), features.landlock)
    lacking = [layer for layer in plan.layers if layer.why_not and layer.name in required_layers(setting)]
    if lacking:
        reasons = "; ".join(f"{layer.name} ({layer.why_not})" for layer in lacking)
        raise InvalidRequest(
            f"No kernel was started: the setting sandbox.mode requires what this machine does not give: {reasons}. "
            "`quire doctor` shows every layer."
        )
    return plan
