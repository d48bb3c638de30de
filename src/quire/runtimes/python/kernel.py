"""One Python kernel: a keeper, the live process it holds, and its checkpoints."""

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
from quire.runtimes.python.supervisor import Keeper
from quire.runtimes.python.worker_process import Live
from quire.runtimes.python.zygote import Zygote
from quire.runtimes.sandbox.kernel_sandbox import Sandbox, Walls
from quire.wire import messages, packets, relay
from quire.wire.messages import Event

VENV = "venv"
"""What a notebook names as its python to have an environment of its own, in its workspace."""

_INDEX = ("pypi.org", "files.pythonhosted.org")  # where %pip finds and gets packages
_ENTER = 30.0  # seconds a kernel has to be where it works
_VENV = 150.0  # and to make its environment
_CHECKPOINT = 30.0  # seconds a checkpoint may take: on a busy machine a kernel is not to be ended for being slow
_LOST = 20  # things lost that a census may name
_NAME = 100  # characters of each
_NOTE = 300  # characters of what is different after a restore
_LOSSES = 100  # things that did not come back from a snapshot
_LOAD = 300.0  # seconds a snapshot may take to load
_DENIED = 20  # hosts that a run's output names as not granted
_WATCH = 0.5  # seconds between looks at how many processes a cell has


class PythonKernel:
    _live: Live

    def __init__(self, zygote: Zygote, keeper: Keeper, calls: Relay, walls: Walls) -> None:
        self._zygote = zygote
        self._keeper = keeper
        self._calls = calls
        self._walls = walls
        self._offered = -1  # the catalog that the live process has
        self._spec: KernelSpec | None = None  # None while nobody has it
        self._branched = False  # as it began, it was somewhere already
        self._ancestors: list[Keeper] = []  # of what it was branched from
        self._ledger = checkpoint_budget.Ledger()
        self._burials: set[asyncio.Task[None]] = set()
        self._watching: asyncio.TimerHandle | None = None
        self._unwritable: snapshot_writing.Refused = {}
        self._denied: set[str] | None = None  # hosts the run that is on asked for in vain; None between runs
        walls.hear(self._refused)

    @classmethod
    async def start(cls, zygote: Zygote, calls: Relay, sandbox: Sandbox) -> PythonKernel:
        walls = sandbox.walls()
        try:
            keeper = await zygote.fork(apart=sandbox.plan.on("pid"), own_uid=sandbox.plan.on("uid"))
        except BaseException:
            walls.close()
            raise
        return await cls._of(zygote, keeper, calls, walls)

    @classmethod
    async def _of(
        cls, zygote: Zygote, keeper: Keeper, calls: Relay, walls: Walls, spec: KernelSpec | None = None
    ) -> PythonKernel:
        kernel = cls(zygote, keeper, calls, walls)
        kernel._spec = spec
        joining = asyncio.get_running_loop().create_task(walls.join(keeper.pid))
        try:
            kernel._live = await Live.begin(keeper, kernel, {"do": "start"})
            await joining
            await walls.join(kernel._live.pid)  # which may have been forked before
        except BaseException:
            joining.cancel()
            await asyncio.shield(cls._abandon(keeper, walls))
            raise
        return kernel

    @staticmethod
    async def _abandon(keeper: Keeper, walls: Walls) -> None:
        try:
            await keeper.close()
        finally:
            walls.close()

    async def enter(self, spec: KernelSpec, ipython: str = "") -> None:
        """Become this notebook's: its folder, its limits, its walls. `ipython` is a folder with IPython for an
        interpreter that may have none."""
        self._spec = spec
        keeper, walls = self._keeper, self._walls
        if keeper.door is not None:
            await walls.open_network(keeper.door, spec.network)
        walls.limit(spec.limits, spec.checkpoint_bytes)
        if spec.limits.processes:
            keeper.order(do="count", most=spec.limits.processes)
        trees = walls.trees(spec, (await self._zygote.ready())["places"], [ipython] if ipython else [])
        copies = await self._zygote.trees(trees, keeper.ids) if walls.own_uid else []
        request = messages.Enter(
            workspace=spec.workspace,
            memory=spec.limits.memory,
            cpu=spec.limits.cpu,
            ipython=spec.ipython,
            ipython_folder=ipython,
            venv=f"{spec.workspace}/.venv" if spec.python == VENV else "",
            environ=walls.environ,
            proxied=bool(walls.environ),
            sandbox=walls.rules(spec, trees),
            no_index=walls.not_granted(spec, _INDEX),
        )
        try:
            async with asyncio.timeout(_VENV if request.venv else _ENTER):
                await self._live.enter(request, copies)
        except TimeoutError:
            raise OperationFailed("A kernel could not start: it was not where it works in time. Call again.") from None
        finally:
            packets.close(copies)

    def _refused(self, host: str) -> None:
        """The network was asked for what it does not give: whoever reads the output is to know, once a run."""
        if self._denied is not None and host not in self._denied and len(self._denied) < _DENIED:
            self._denied.add(host)
            self._live.tell(f"[quire] Not connected to {host}: this notebook was not granted it (setting network).\n")

    @property
    def alive(self) -> bool:
        return self._live.alive and self._keeper.alive

    @property
    def fresh(self) -> bool:
        return True

    @property
    def patience(self) -> float:
        return 0.0

    async def begin(self, run: messages.Run) -> None:
        self._denied = set()
        await self._live.run(run)
        self._watch()

    async def event(self) -> Event | Died:
        event = await self._live.event()
        if isinstance(event, (messages.Finished, Died)):
            self._denied = None
            self._unwatch()
        return event

    async def ask(self, question: messages.Inspect | messages.Read | messages.Page) -> Event | Died:
        return await self._live.ask(question)

    async def answer(self, answer: messages.Answer) -> None:
        await self._live.send(answer)

    async def offer(self, catalog: Catalog) -> None:
        if catalog.version != self._offered:
            self._offered = catalog.version
            await self._live.send(messages.Offer(catalog=catalog.entries, hidden=catalog.hidden))

    async def call(self, called: relay.Called) -> relay.Answer:
        """What the code asks of a capability."""
        assert self._spec is not None  # code runs only where somebody has the kernel
        return await self._calls.call(self._spec, called)

    def native(self, capabilities: list[dict[str, Any]]) -> None:
        """What the code offers itself."""
        if self._spec is not None:
            self._calls.native(self._spec, capabilities)

    def interrupt(self) -> None:
        self._live.interrupt()

    async def kill(self) -> None:
        """End the live process, whatever it does; the checkpoints stay."""
        await self._live.close()

    async def close(self) -> None:
        self._unwatch()
        await asyncio.shield(self._close())

    async def _close(self) -> None:
        self.native([])
        await self._keeper.close()
        await asyncio.gather(self._live.close(), *self._burials)
        self._walls.close()

    def _bury(self, live: Live) -> None:
        burial = asyncio.get_running_loop().create_task(live.close())
        self._burials.add(burial)
        burial.add_done_callback(self._burials.discard)

    # Checkpoints

    @property
    def checkpoints(self) -> dict[str, ForkReport]:
        return self._keeper.kept

    async def checkpoint(self, name: str) -> float | str:
        """Take one; the seconds of work it took, or why there is none."""
        assert self._spec is not None
        if not checkpoint_budget.machine().room_beside(checkpoint_budget.size_of(self._live.pid)):
            self._keeper.drop(list(self._keeper.kept))  # they would grow with every change
            return "this machine has too little memory left for a second copy of the namespace"
        try:
            async with asyncio.timeout(_CHECKPOINT):
                answer = await self._live.ask(messages.Checkpoint(name=name))
        except TimeoutError:
            await self.kill()  # it answers nothing: it is not to be trusted with the next cell
            return "it did not answer when one was to be taken"
        if not isinstance(answer, messages.Checkpointed):
            return "the kernel ended"
        if answer.why_not or not self._keeper.alive:
            return answer.why_not or "the kernel ended"
        lost = tuple(each[:_NAME] for each in answer.lost[:_LOST])
        self._keeper.kept[name] = ForkReport(quality=answer.quality, lost=lost)
        self._ledger.taken(list(self._keeper.kept), answer.faults)
        return answer.seconds

    async def thin_out(self, named: set[str]) -> None:
        """Drop the oldest checkpoints, named ones last, until the rest fit the notebook's budget."""
        assert self._spec is not None
        keeper, ledger = self._keeper, self._ledger
        allowed = checkpoint_budget.machine().share(self._spec.checkpoint_bytes)
        if ledger.doubtful(allowed, named):
            ledger.weighed(*await keeper.weigh())
        surplus = ledger.surplus(allowed, named)
        if surplus:
            keeper.drop(surplus)

    async def sizes(self) -> dict[str, int]:
        """Bytes that dropping each checkpoint would free."""
        return (await self._keeper.weigh())[1]

    def memory(self) -> int:
        """Bytes of its own that the live process holds, and what its checkpoints are guessed or weighed to."""
        return checkpoint_budget.size_of(self._live.pid) + self._ledger.held(self._keeper.kept)

    async def restore(self, name: str) -> None:
        """Wake a checkpoint into the live process's place; "" is the kernel as it began. Raises OperationFailed."""
        assert self._spec is not None
        kept = self._keeper.kept.pop(name, None)  # first of all: whoever hears that it does not wake tries the next
        if not self._keeper.alive:
            raise OperationFailed("The process that kept this kernel's checkpoints is gone.")
        if name and kept is None:
            raise OperationFailed("That checkpoint is not kept any more.")
        self._ledger.woken(name)
        await self._begin_anew({"do": "wake", "name": name} if name else {"do": "start"})

    async def _begin_anew(self, order: dict[str, str], more: Sequence[int] = ()) -> None:
        """Have another process in the live one's place."""
        assert self._spec is not None
        old = self._live
        self.native([])  # a woken one says what it has
        self._offered = -1
        try:
            self._live = await Live.begin(self._keeper, self, order, more)
        except OperationFailed:
            if self._keeper.live != old.pid:  # what came in its place did not come up
                await old.close()
            raise
        self._bury(old)  # the keeper killed it; its last words need not be waited for
        if order["do"] == "start" and not self._branched:
            await self.enter(self._spec)

    def forget(self, name: str) -> None:
        """Let a checkpoint go."""
        self._keeper.drop([name])

    # Snapshots

    async def write(self, name: str, draft: Draft, *, base: str, limit: int, values: bool) -> Written:
        """Have a checkpoint written down, in a process of its own, while cells run."""
        if name not in self._keeper.kept:
            raise OperationFailed("That checkpoint is not kept any more.")
        order = {"name": name, "base": base, "limit": limit, "values": values}
        return await snapshot_writing.write(self._keeper, order, draft, self._unwritable)

    async def load(self, recipe: Recipe) -> Restored:
        """Start a fresh process and load a snapshot. If that raises OperationFailed, the process is fresh."""
        await self._begin_anew({"do": "start"}, [recipe.file, *recipe.packs])
        try:
            async with asyncio.timeout(_LOAD):
                answer = await self._live.ask(messages.Load())
        except TimeoutError:
            await self._begin_anew({"do": "start"})
            raise OperationFailed(f"it did not load within {_LOAD:g} s") from None
        if not isinstance(answer, messages.Loaded) or answer.why_not:
            await self._begin_anew({"do": "start"})
            raise OperationFailed(
                answer.why_not if isinstance(answer, messages.Loaded) else "the kernel ended while it loaded"
            )
        return Restored(
            variables=answer.variables,
            lost=tuple(_loss(each) for each in answer.lost[:_LOSSES]),
            notes=tuple(note[:_NOTE] for note in answer.notes[:_LOST]),
            seconds=answer.seconds,
        )

    async def branch(self, name: str, spec: KernelSpec) -> PythonKernel:
        """A kernel of its own that begins where the checkpoint stands, sharing memory until either writes."""
        ours, theirs = packets.pair()
        ours.setblocking(False)
        try:
            with theirs:
                pid, pidfd = await self._keeper.launch({"do": "branch", "name": name}, [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        self._zygote.adopt(pid)
        self._keeper.branched = True
        for keeper in self._ancestors:  # it becomes their child when the ones between end
            keeper.adopt(pid, self._keeper)
            keeper.branched = True
        ids = os.dup(self._keeper.ids) if self._keeper.ids >= 0 else -1
        kernel = await self._of(self._zygote, Keeper(ours, pidfd, ids), self._calls, self._walls.shared(), spec)
        kernel._ancestors = [*self._ancestors, self._keeper]
        kernel._branched = bool(name) or self._branched
        if not kernel._branched:
            await kernel.enter(spec)
        return kernel

    # How many processes a cell has

    def _watch(self) -> None:
        if self._spec is not None and self._spec.limits.processes:
            self._watching = asyncio.get_running_loop().call_later(_WATCH, self._look)

    def _look(self) -> None:
        assert self._spec is not None
        self._keeper.order(do="count", most=self._spec.limits.processes)
        self._watch()

    def _unwatch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None


def _loss(said: dict[str, str]) -> Loss:
    name, what, why = (said.get(part, "")[:_NAME] for part in ("name", "what", "why"))
    return Loss(name=name, what=what, why=why, run=RunId(said["run"]) if said.get("run") else None)
