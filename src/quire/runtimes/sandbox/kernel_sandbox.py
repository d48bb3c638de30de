"""The walls around one kernel, as the server sees them: its control group, its way to the network, what it may see."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from quire.core.errors import OperationFailed
from quire.core.limits import network_rules
from quire.core.model import KernelLimits, KernelSpec
from quire.runtimes.sandbox.cgroups import Cgroup, Cgroups
from quire.runtimes.sandbox.plan import Plan
from quire.runtimes.sandbox.proxy import Proxy

_FILES = 65_536  # descriptors a process may have
_NO_PROXY = "localhost,127.0.0.1,::1"


class Sandbox:
    """What every kernel of a server is put behind; made once it is known what the machine gives."""

    def __init__(self, plan: Plan, cgroups: Cgroups | None) -> None:
        self.plan = plan
        self._cgroups = cgroups if plan.on("cgroup") else None

    def walls(self, network: _Network | None = None) -> Walls:
        """For a new kernel. Raises OperationFailed."""
        group = self._cgroups.make() if self._cgroups is not None else None
        return Walls(self, group, network or _Network())

    def add(self, group: Cgroup, pid: int) -> None:
        if self._cgroups is not None:
            self._cgroups.add(group, pid)

    def give_back(self, group: Cgroup) -> None:
        if self._cgroups is not None:
            self._cgroups.give_back(group)


class Walls:
    """One for a kernel; a branch shares the network of where it came from, until the last of them ends."""

    def __init__(self, sandbox: Sandbox, group: Cgroup | None, network: _Network) -> None:
        self._sandbox = sandbox
        self._group = group
        self._network = network
        self._network.users += 1
        self._refused: Callable[[str], None] | None = None
        self._closed = False

    @property
    def own_uid(self) -> bool:
        return self._sandbox.plan.on("uid")

    @property
    def environ(self) -> dict[str, str]:
        """Where programs find the way out."""
        if not self._network.port:
            return {}
        proxy = f"http://127.0.0.1:{self._network.port}"
        found = {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": _NO_PROXY, "NODE_USE_ENV_PROXY": "1"}
        return found | {name.upper(): value for name, value in found.items()}

    def shared(self) -> Walls:
        """For a branch: it was forked inside the same walls."""
        return self._sandbox.walls(self._network)

    async def join(self, pid: int) -> None:
        """Put a process, with all that it will start, into the kernel's control group. Raises OperationFailed."""
        if self._group is not None:
            try:
                # in a thread: the system may wait for every processor of the machine
                await asyncio.to_thread(self._sandbox.add, self._group, pid)
            except OSError as error:
                raise OperationFailed(f"A kernel could not be put into its control group: {error}.") from error

    async def open_network(self, door: tuple[int, socket.socket], granted: tuple[str, ...]) -> None:
        await self._network.open(door, granted)

    def hear(self, refused: Callable[[str], None]) -> None:
        """Be told which hosts were asked for in vain, by whoever is behind these walls."""
        self._refused = refused
        self._network.listeners.append(refused)

    def limit(self, limits: KernelLimits, checkpoints: int) -> None:
        if self._group is not None:
            memory = limits.memory + checkpoints if limits.memory else 0
            try:
                self._group.limit(memory=memory, processes=limits.processes)
            except OSError as error:
                raise OperationFailed(f"A kernel's control group could not be limited: {error}.") from error

    def trees(self, spec: KernelSpec, places: list[str], libraries: list[str]) -> list[tuple[str, bool]]:
        """What the kernel may see besides the system, each writable or not: where its interpreter lies, folders of
        libraries, what was granted, the workspace."""
        shown = dict.fromkeys([*(places if self._sandbox.plan.on("mount") else []), *libraries], False)
        shown |= {mount.path: mount.writable for mount in spec.mounts}
        return list((shown | {spec.workspace: True}).items())

    def rules(self, spec: KernelSpec, trees: list[tuple[str, bool]]) -> dict[str, Any]:
        """What the kernel's process does to itself when it enters: see worker/sandbox/apply.py."""
        plan = self._sandbox.plan
        if not plan.any:
            return {}
        given = self.own_uid
        return {
            "layers": plan.inside,
            "granted": [[path, writable, at if given else -1] for at, (path, writable) in enumerate(trees)],
            "private_bytes": spec.limits.memory,
            "limits": {"CORE": 0, "NOFILE": _FILES} | ({"FSIZE": spec.limits.file} if spec.limits.file else {}),
            "landlock": plan.landlock,
            "internet": plan.on("net"),  # whose only way out is the door; without, there is none
        }

    def not_granted(self, spec: KernelSpec, hosts: tuple[str, ...]) -> list[str]:
        """Which of these hosts its code cannot reach over HTTPS."""
        plan = self._sandbox.plan
        if not plan.on("net"):
            return list(hosts) if plan.on("seccomp") else []
        granted = network_rules.rules(spec.network)
        return [host for host in hosts if network_rules.covering(granted, host, 443) is None]

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._refused is not None:
            self._network.listeners.remove(self._refused)
        self._network.leave()
        if self._group is not None:
            self._sandbox.give_back(self._group)


class _Network:
    """The way out that a kernel and its branches share."""

    def __init__(self) -> None:
        self.users = 0
        self.port = 0
        self.listeners: list[Callable[[str], None]] = []
        self._proxy: Proxy | None = None

    async def open(self, door: tuple[int, socket.socket], granted: tuple[str, ...]) -> None:
        if self._proxy is None:
            self.port = door[0]
            self._proxy = Proxy(door[1], granted, self._refused)
            await self._proxy.open()

    def leave(self) -> None:
        self.users -= 1
        if self.users == 0 and self._proxy is not None:
            self._proxy.close()

    def _refused(self, host: str) -> None:
        for listener in self.listeners:
            listener(host)
