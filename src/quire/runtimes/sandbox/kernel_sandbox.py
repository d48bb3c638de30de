"""The sandbox of one kernel, on the server's side: control group, network access, visible paths."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from quire.core.errors import OperationFailed
from quire.core.limits import network_rules
from quire.core.model import KernelLimits, KernelSpec
from quire.runtimes.sandbox.cgroups import Cgroups
from quire.runtimes.sandbox.plan import Plan
from quire.runtimes.sandbox.proxy import Proxy

_MAX_OPEN_FILES = 65_536  # of a process
_NO_PROXY = "localhost,127.0.0.1,::1"


class SandboxFactory:
    """Creates the sandboxes of kernels, once the features of the machine are known."""

    def __init__(self, plan: Plan, cgroups: Cgroups | None) -> None:
        self.plan = plan
        self._cgroups = cgroups if plan.has("cgroup") else None

    def create(self, network: _Network | None = None) -> KernelSandbox:
        """For a new kernel. Raises OperationFailed."""
        return KernelSandbox(self.plan, self._cgroups, network or _Network())


class KernelSandbox:
    """The sandbox of one kernel. A branch shares the network with its origin until the last of them ends."""

    def __init__(self, plan: Plan, cgroups: Cgroups | None, network: _Network) -> None:
        """Raises OperationFailed."""
        self._plan = plan
        self._cgroups = cgroups
        self._group = cgroups.create_group() if cgroups is not None else None
        self._network = network
        self._network.users += 1
        self._on_denied: Callable[[str], None] | None = None
        self._closed = False

    @property
    def own_uid(self) -> bool:
        return self._plan.has("uid")

    @property
    def proxy_environ(self) -> dict[str, str]:
        """Variables that name the proxy."""
        if not self._network.port:
            return {}
        proxy = f"http://127.0.0.1:{self._network.port}"
        variables = {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": _NO_PROXY, "NODE_USE_ENV_PROXY": "1"}
        return variables | {name.upper(): value for name, value in variables.items()}

    def for_branch(self) -> KernelSandbox:
        """For a branch, whose processes are forks in the same sandbox."""
        return KernelSandbox(self._plan, self._cgroups, self._network)

    async def join(self, pid: int) -> None:
        """Put a process and all that it will start into the kernel's control group. Raises OperationFailed."""
        if self._cgroups is not None and self._group is not None:
            try:
                # in a thread: Linux may wait for every processor of the machine
                await asyncio.to_thread(self._cgroups.add, self._group, pid)
            except OSError as error:
                raise OperationFailed(f"A kernel could not be put into its control group: {error}.") from error

    async def open_network(self, listener: tuple[int, socket.socket], granted: tuple[str, ...]) -> None:
        await self._network.open(listener, granted)

    def on_denied_host(self, callback: Callable[[str], None]) -> None:
        """Call this with each host that was denied to the kernel."""
        self._on_denied = callback
        self._network.listeners.append(callback)

    def limit(self, limits: KernelLimits, checkpoints: int) -> None:
        if self._group is not None:
            memory = limits.memory + checkpoints if limits.memory else 0
            try:
                self._group.limit(memory=memory, processes=limits.processes)
            except OSError as error:
                raise OperationFailed(f"A kernel's control group could not be limited: {error}.") from error

    def visible_paths(
        self, spec: KernelSpec, interpreter_paths: list[str], libraries: list[str]
    ) -> list[tuple[str, bool]]:
        """The paths that the kernel sees besides the system, each writable or not: interpreter, libraries, mounts,
        workspace."""
        paths = dict.fromkeys([*(interpreter_paths if self._plan.has("mount") else []), *libraries], False)
        paths |= {mount.path: mount.writable for mount in spec.mounts}
        return list((paths | {spec.workspace: True}).items())

    def layer_settings(self, spec: KernelSpec, paths: list[tuple[str, bool]]) -> dict[str, Any]:
        """What the worker applies to itself when it enters: see worker/sandbox/apply.py."""
        plan = self._plan
        if not plan.any_active:
            return {}
        return {
            "layers": plan.worker_layers,
            "granted": [
                [path, writable, index if self.own_uid else -1] for index, (path, writable) in enumerate(paths)
            ],
            "private_bytes": spec.limits.memory,
            "limits": {"CORE": 0, "NOFILE": _MAX_OPEN_FILES}
            | ({"FSIZE": spec.limits.file} if spec.limits.file else {}),
            "landlock": plan.landlock,
            "internet": plan.has("net"),  # through the proxy of the network namespace
        }

    def unreachable_hosts(self, spec: KernelSpec, hosts: tuple[str, ...]) -> list[str]:
        """The hosts that the code cannot reach over HTTPS."""
        plan = self._plan
        if not plan.has("net"):
            return list(hosts) if plan.has("seccomp") else []
        granted = network_rules.parse_rules(spec.network)
        return [host for host in hosts if network_rules.find_rule(granted, host, 443) is None]

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._on_denied is not None:
            self._network.listeners.remove(self._on_denied)
        self._network.release()
        if self._cgroups is not None and self._group is not None:
            self._cgroups.release(self._group)


class _Network:
    """The proxy that a kernel and its branches share."""

    def __init__(self) -> None:
        self.users = 0
        self.port = 0
        self.listeners: list[Callable[[str], None]] = []
        self._proxy: Proxy | None = None

    async def open(self, listener: tuple[int, socket.socket], granted: tuple[str, ...]) -> None:
        if self._proxy is None:
            self.port = listener[0]
            self._proxy = Proxy(listener[1], granted, self._on_denied)
            await self._proxy.open()

    def release(self) -> None:
        self.users -= 1
        if self.users == 0 and self._proxy is not None:
            self._proxy.close()

    def _on_denied(self, host: str) -> None:
        for listener in self.listeners:
            listener(host)
