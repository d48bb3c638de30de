"""One Python kernel: its supervisor, the live process and the checkpoints."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from quire.core.capabilities.model import Catalog
from quire.core.errors import OperationFailed
from quire.core.model import Died, ForkReport, KernelSpec, Loss, Restored, RunId
from quire.core.ports.kernel import Relay
from quire.core.ports.snapshots import Draft, Recipe, Written
from quire.runtimes.python import checkpoint_budget, snapshot_writing
from quire.runtimes.python.supervisor import SupervisorClient
from quire.runtimes.python.worker_process import WorkerProcess
from quire.runtimes.python.zygote import ZygoteClient
from quire.runtimes.sandbox.kernel_sandbox import KernelSandbox, SandboxFactory
from quire.wire import messages, packets, relay
from quire.wire.messages import Event

VENV = "venv"
"""The value of a notebook's `python` that asks for a virtual environment in its workspace."""

_INDEX_HOSTS = ("pypi.org", "files.pythonhosted.org")  # of %pip
_ENTER_TIMEOUT_S = 30.0  # for the worker to enter the workspace and the sandbox
_VENV_TIMEOUT_S = 150.0  # the same, with the virtual environment to create
_CHECKPOINT_TIMEOUT_S = 30.0  # long, since a kernel on a busy machine must not be ended for being slow
_MAX_REPORTED = 20  # losses or notes accepted
_MAX_NAME_CHARS = 100  # of a lost thing
_MAX_NOTE_CHARS = 300  # of a note after a restore
_MAX_LOSSES = 100  # things not restored from a snapshot
_LOAD_TIMEOUT_S = 300.0
_MAX_DENIED_HOSTS = 20  # named in the output of one run
_CHECK_INTERVAL_S = 0.5  # between checks of the process limit


class PythonKernel:
    _worker: WorkerProcess

    def __init__(
        self,
        zygote: ZygoteClient,
        supervisor: SupervisorClient,
        calls: Relay,
        sandbox: KernelSandbox,
        spec: KernelSpec | None = None,
        ancestors: Sequence[SupervisorClient] = (),
        starts_from_checkpoint: bool = False,
    ) -> None:
        """`spec` is None for a spare kernel. `ancestors` are the supervisors of the kernels it was branched from."""
        self._zygote = zygote
        self._supervisor = supervisor
        self._calls = calls
        self._sandbox = sandbox
        self._spec = spec
        self._ancestors = ancestors
        self._starts_from_checkpoint = starts_from_checkpoint
        self._catalog_version = -1  # of the live process
        self._checkpoint_sizes = checkpoint_budget.CheckpointSizes()
        self._closing: set[asyncio.Task[None]] = set()
        self._process_check: asyncio.TimerHandle | None = None
        self._unwritable: snapshot_writing.Unwritable = {}
        self._denied_hosts: set[str] | None = None  # hosts denied to the current run; None between runs
        sandbox.on_denied_host(self._on_denied_host)

    @classmethod
    async def start(cls, zygote: ZygoteClient, calls: Relay, factory: SandboxFactory) -> PythonKernel:
        sandbox = factory.create()
        try:
            supervisor = await zygote.fork(isolated=factory.plan.has("pid"), own_uid=factory.plan.has("uid"))
        except BaseException:
            sandbox.close()
            raise
        kernel = cls(zygote, supervisor, calls, sandbox)
        await kernel._start_worker()
        return kernel

    async def _start_worker(self) -> None:
        joining = asyncio.get_running_loop().create_task(self._sandbox.join(self._supervisor.pid))
        try:
            self._worker = await WorkerProcess.start(self._supervisor, self, {"do": "start"})
            await joining
            await self._sandbox.join(self._worker.pid)  # it may have been forked before the supervisor joined
        except BaseException:
            joining.cancel()
            await asyncio.shield(self._discard())
            raise

    async def _discard(self) -> None:
        try:
            await self._supervisor.close()
        finally:
            self._sandbox.close()

    async def enter(self, spec: KernelSpec, ipython: str = "") -> None:
        """Configure this kernel for a notebook: workspace, limits and sandbox. `ipython` is a folder with IPython, for
        interpreters without it."""
        self._spec = spec
        supervisor, sandbox = self._supervisor, self._sandbox
        if supervisor.proxy_listener is not None:
            await sandbox.open_network(supervisor.proxy_listener, spec.network)
        sandbox.limit(spec.limits, spec.checkpoint_bytes)
        if spec.limits.processes:
            supervisor.send_order(do="limit_processes", limit=spec.limits.processes)
        interpreter = (await self._zygote.ready())["interpreter_paths"]
        paths = sandbox.visible_paths(spec, interpreter, [ipython] if ipython else [])
        mounts = await self._zygote.open_trees(paths, supervisor.user_namespace) if sandbox.own_uid else []
        request = messages.Enter(
            workspace=spec.workspace,
            memory=spec.limits.memory,
            cpu=spec.limits.cpu,
            ipython=spec.ipython,
            ipython_folder=ipython,
            venv=f"{spec.workspace}/.venv" if spec.python == VENV else "",
            environ=sandbox.proxy_environ,
            proxied=bool(sandbox.proxy_environ),
            sandbox=sandbox.layer_settings(spec, paths),
            no_index=sandbox.unreachable_hosts(spec, _INDEX_HOSTS),
        )
        try:
            async with asyncio.timeout(_VENV_TIMEOUT_S if request.venv else _ENTER_TIMEOUT_S):
                await self._worker.enter(request, mounts)
        except TimeoutError:
            raise OperationFailed("A kernel did not enter its workspace in time. Call again.") from None
        finally:
            packets.close(mounts)

    def _on_denied_host(self, host: str) -> None:
        """Write a notice into the run's output, once for each denied host."""
        hosts = self._denied_hosts
        if hosts is not None and host not in hosts and len(hosts) < _MAX_DENIED_HOSTS:
            hosts.add(host)
            notice = f"[quire] Not connected to {host}: this notebook was not granted it (setting sandbox.network).\n"
            self._worker.write_notice(notice)

    @property
    def alive(self) -> bool:
        return self._worker.alive and self._supervisor.alive

    @property
    def fresh(self) -> bool:
        return True

    @property
    def patience(self) -> float:
        return 0.0

    async def begin(self, run: messages.Run) -> None:
        self._denied_hosts = set()
        await self._worker.run(run)
        self._schedule_process_check()

    async def event(self) -> Event | Died:
        event = await self._worker.next_event()
        if isinstance(event, (messages.Finished, Died)):
            self._denied_hosts = None
            self._cancel_process_check()
        return event

    async def ask(self, question: messages.Inspect | messages.Read | messages.Page) -> Event | Died:
        return await self._worker.ask(question)

    async def answer(self, answer: messages.Answer) -> None:
        await self._worker.send(answer)

    async def offer(self, catalog: Catalog) -> None:
        if catalog.version != self._catalog_version:
            self._catalog_version = catalog.version
            await self._worker.send(messages.Offer(catalog=catalog.entries, hidden=catalog.hidden))

    async def call(self, called: relay.Called) -> relay.Answer:
        """Answer a capability call of the code."""
        assert self._spec is not None  # code runs only in a kernel of a notebook
        return await self._calls.call(self._spec, called)

    def native(self, capabilities: list[dict[str, Any]]) -> None:
        """Publish the capabilities that the code defines."""
        if self._spec is not None:
            self._calls.native(self._spec, capabilities)

    def interrupt(self) -> None:
        self._worker.interrupt()

    async def kill(self) -> None:
        """End the live process; the checkpoints stay."""
        await self._worker.close()

    async def close(self) -> None:
        self._cancel_process_check()
        await asyncio.shield(self._close())

    async def _close(self) -> None:
        self.native([])
        await self._supervisor.close()
        await asyncio.gather(self._worker.close(), *self._closing)
        self._sandbox.close()

    def _close_in_background(self, worker: WorkerProcess) -> None:
        closing = asyncio.get_running_loop().create_task(worker.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    # Checkpoints

    @property
    def checkpoints(self) -> dict[str, ForkReport]:
        return self._supervisor.checkpoints

    async def checkpoint(self, name: str) -> float | str:
        """Take a checkpoint. Returns the processor seconds it took, or why it was not taken."""
        assert self._spec is not None
        if not checkpoint_budget.machine_memory().has_room_for_copy(checkpoint_budget.private_bytes(self._worker.pid)):
            self._supervisor.drop_checkpoints(list(self._supervisor.checkpoints))  # they would grow with every change
            return "this machine has too little memory left for a second copy of the namespace"
        try:
            async with asyncio.timeout(_CHECKPOINT_TIMEOUT_S):
                answer = await self._worker.ask(messages.Checkpoint(name=name))
        except TimeoutError:
            await self.kill()  # it does not answer: do not run the next cell in it
            return "it did not answer when one was to be taken"
        if not isinstance(answer, messages.Checkpointed):
            return "the kernel ended"
        if answer.why_not or not self._supervisor.alive:
            return answer.why_not or "the kernel ended"
        lost = tuple(item[:_MAX_NAME_CHARS] for item in answer.lost[:_MAX_REPORTED])
        self._supervisor.checkpoints[name] = ForkReport(quality=answer.quality, lost=lost)
        self._checkpoint_sizes.add(list(self._supervisor.checkpoints), answer.faults)
        return answer.seconds

    async def thin_out(self, named: set[str]) -> None:
        """Drop the oldest checkpoints, named ones last, until the rest fit the notebook's budget."""
        assert self._spec is not None
        supervisor, sizes = self._supervisor, self._checkpoint_sizes
        allowed = checkpoint_budget.machine_memory().allowed_bytes(self._spec.checkpoint_bytes)
        if sizes.needs_measuring(allowed, named):
            sizes.set_measured(*await supervisor.measure_checkpoints())
        surplus = sizes.choose_dropped(allowed, named)
        if surplus:
            supervisor.drop_checkpoints(surplus)

    async def sizes(self) -> dict[str, int]:
        """Bytes that dropping each checkpoint would free."""
        return (await self._supervisor.measure_checkpoints())[1]

    def memory(self) -> int:
        """Bytes that the live process and the checkpoints hold; those of checkpoints may be estimates."""
        checkpoints = self._checkpoint_sizes.total_bytes(self._supervisor.checkpoints)
        return checkpoint_budget.private_bytes(self._worker.pid) + checkpoints

    async def restore(self, name: str) -> None:
        """Replace the live process by a checkpoint; "" is the state the kernel began with. Raises OperationFailed."""
        assert self._spec is not None
        checkpoint = self._supervisor.checkpoints.pop(name, None)  # even if it fails: the caller then tries the next
        if not self._supervisor.alive:
            raise OperationFailed("The supervisor of this kernel's checkpoints has ended.")
        if name and checkpoint is None:
            raise OperationFailed("That checkpoint is not kept any more.")
        self._checkpoint_sizes.remove(name)
        await self._replace_worker({"do": "wake", "name": name} if name else {"do": "start"})

    async def _replace_worker(self, order: dict[str, str], extra_descriptors: Sequence[int] = ()) -> None:
        """Start another process in place of the live one."""
        assert self._spec is not None
        previous = self._worker
        self.native([])  # the new process publishes its own
        self._catalog_version = -1
        try:
            self._worker = await WorkerProcess.start(self._supervisor, self, order, extra_descriptors)
        except OperationFailed:
            if self._supervisor.worker_pid != previous.pid:  # the process that replaced it did not start
                await previous.close()
            raise
        self._close_in_background(previous)  # the supervisor has killed it; its last output is not needed
        if order["do"] == "start" and not self._starts_from_checkpoint:
            await self.enter(self._spec)

    def forget(self, name: str) -> None:
        """Drop a checkpoint."""
        self._supervisor.drop_checkpoints([name])

    # Snapshots

    async def write(self, name: str, draft: Draft, *, base: str, limit: int, values: bool) -> Written:
        """Write a checkpoint as a snapshot, in a process of its own, while cells run."""
        if name not in self._supervisor.checkpoints:
            raise OperationFailed("That checkpoint is not kept any more.")
        order = {"name": name, "base": base, "limit": limit, "values": values}
        return await snapshot_writing.write(self._supervisor, order, draft, self._unwritable)

    async def load(self, recipe: Recipe) -> Restored:
        """Load a snapshot into a fresh process. If that raises OperationFailed, the process is fresh."""
        await self._replace_worker({"do": "start"}, [recipe.file, *recipe.packs])
        try:
            async with asyncio.timeout(_LOAD_TIMEOUT_S):
                answer = await self._worker.ask(messages.Load())
        except TimeoutError:
            await self._replace_worker({"do": "start"})
            raise OperationFailed(f"it did not load within {_LOAD_TIMEOUT_S:g} s") from None
        if not isinstance(answer, messages.Loaded) or answer.why_not:
            await self._replace_worker({"do": "start"})
            raise OperationFailed(
                answer.why_not if isinstance(answer, messages.Loaded) else "the kernel ended while it loaded"
            )
        return Restored(
            variables=answer.variables,
            lost=tuple(_loss(item) for item in answer.lost[:_MAX_LOSSES]),
            notes=tuple(note[:_MAX_NOTE_CHARS] for note in answer.notes[:_MAX_REPORTED]),
            seconds=answer.seconds,
        )

    async def branch(self, name: str, spec: KernelSpec) -> PythonKernel:
        """A kernel of its own that starts from the checkpoint. It shares memory until either of them writes."""
        server_end, supervisor_end = packets.socket_pair()
        server_end.setblocking(False)
        try:
            with supervisor_end:
                pid, pidfd = await self._supervisor.launch({"do": "branch", "name": name}, [supervisor_end.fileno()])
        except BaseException:
            server_end.close()
            raise
        self._zygote.adopt(pid)
        for supervisor in self._ancestors:  # the branch becomes their child when those between end
            supervisor.adopt(pid, self._supervisor)
        user_namespace = os.dup(self._supervisor.user_namespace) if self._supervisor.user_namespace >= 0 else -1
        supervisor, sandbox = SupervisorClient(server_end, pidfd, user_namespace), self._sandbox.for_branch()
        ancestors, is_further = [*self._ancestors, self._supervisor], bool(name) or self._starts_from_checkpoint
        kernel = PythonKernel(self._zygote, supervisor, self._calls, sandbox, spec, ancestors, is_further)
        await kernel._start_worker()
        if not is_further:
            await kernel.enter(spec)
        return kernel

    # Process limit

    def _schedule_process_check(self) -> None:
        if self._spec is not None and self._spec.limits.processes:
            self._process_check = asyncio.get_running_loop().call_later(_CHECK_INTERVAL_S, self._check_processes)

    def _check_processes(self) -> None:
        assert self._spec is not None
        self._supervisor.send_order(do="limit_processes", limit=self._spec.limits.processes)
        self._schedule_process_check()

    def _cancel_process_check(self) -> None:
        if self._process_check is not None:
            self._process_check.cancel()
            self._process_check = None


def _loss(fields: dict[str, str]) -> Loss:
    name, what, why = (fields.get(part, "")[:_MAX_NAME_CHARS] for part in ("name", "what", "why"))
    return Loss(name=name, what=what, why=why, run=RunId(fields["run"]) if fields.get("run") else None)
