"""One kernel in WebAssembly: a guest, and images of it as checkpoints, which outlive the process it is in."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from quire.core.capabilities.model import Catalog
from quire.core.errors import OperationFailed
from quire.core.model import Died, ForkReport, KernelSpec, Restored
from quire.core.ports.kernel import START, Relay
from quire.core.ports.snapshots import Draft, Recipe, Written
from quire.runtimes.wasm import words, writing
from quire.runtimes.wasm.live import Live
from quire.runtimes.wasm.pool import Pool
from quire.runtimes.wasm.shelf import images_of
from quire.wire import messages, relay

_KEEP = 30.0  # seconds an image may take
_FRESH, _UNKNOWN = -1, -2  # in place of a catalog's version: the guest knows of none, or of what is in an image
_CLEAN = ForkReport(quality="clean")


@dataclass(frozen=True, kw_only=True)
class _Kept:
    file: Path
    size: int  # bytes
    about: dict[str, Any]  # variables and functions
    native: list[dict[str, Any]]  # capabilities that the code offered then


class WasmKernel:
    _live: Live

    def __init__(self, pool: Pool, calls: Relay, folder: Path, spec: KernelSpec, make: words.Make) -> None:
        self._pool = pool
        self._calls = calls
        self._images = images_of(folder, spec.owner)
        self._folder = self._images / uuid4().hex
        self._spec = spec
        self._make = make
        self._kept: dict[str, _Kept] = {}  # oldest first
        self._census: dict[str, ForkReport] = {}  # of each of them
        self._offered = _FRESH
        self._memory = 0  # bytes, when an image was last taken
        self._began = ""  # the image it began with
        self._native: list[dict[str, Any]] = []  # capabilities that the code offers
        self._alone = False  # it once did not stop: others of its owner are not to end with it again

    @classmethod
    async def start(
        cls, pool: Pool, calls: Relay, folder: Path, spec: KernelSpec, make: words.Make, image: Path | None = None
    ) -> WasmKernel:
        """With `image`, its namespace begins as that says; the file is copied."""
        kernel = cls(pool, calls, folder, spec, make)
        await kernel._make_folders()
        try:
            if image is not None:
                began = kernel._folder / "began"
                await asyncio.to_thread(shutil.copyfile, image, began)
                kernel._began = str(began)
            await kernel._begin(kernel._began)
        except BaseException:
            await kernel._clear()
            raise
        return kernel

    async def _make_folders(self) -> None:
        workspace = Path(self._spec.workspace)
        ours = workspace.parent.parent in self._folder.parents  # in the data directory, whose disk answers
        try:
            if ours:
                workspace.mkdir(mode=0o700, parents=True, exist_ok=True)  # noqa: ASYNC240 - a thread's turn costs more
            else:
                await asyncio.to_thread(workspace.mkdir, mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise OperationFailed(f"The workspace {workspace} cannot be made: {error.strerror}.") from error
        self._folder.mkdir(mode=0o700, parents=True)

    async def _begin(self, image: str) -> None:
        self._offered = _UNKNOWN if image else _FRESH
        host = await self._pool.room(self._spec.owner, self._images, alone=self._alone)
        self._live = await Live.begin(host, replace(self._make, image=image), self)

    async def call(self, called: relay.Called) -> relay.Answer:
        """What the code asks of a capability."""
        return await self._calls.call(self._spec, called)

    def native(self, capabilities: list[dict[str, Any]]) -> None:
        """What the code offers itself."""
        self._native = capabilities
        self._calls.native(self._spec, capabilities)

    @property
    def alive(self) -> bool:
        return self._live.alive

    @property
    def fresh(self) -> bool:
        return True

    @property
    def patience(self) -> float:
        return 0.0

    async def begin(self, run: messages.Run) -> None:
        self._live.run(run)

    async def event(self) -> messages.Event | Died:
        found: messages.Event | Died = await self._live.event()
        return found

    async def ask(self, question: messages.Inspect | messages.Read | messages.Page) -> messages.Event | Died:
        found: messages.Event | Died = await self._live.ask(question)
        return found

    async def answer(self, answer: messages.Answer) -> None:
        """Code in a sandbox cannot ask for input."""

    async def offer(self, catalog: Catalog) -> None:
        if catalog.version == self._offered:
            return
        new, self._offered = self._offered == _FRESH, catalog.version
        if catalog.entries or not new:
            self._live.send(messages.Offer(catalog=catalog.entries))

    def interrupt(self) -> None:
        self._live.send(words.Interrupt())

    async def kill(self) -> None:
        await self._end(self._live)

    async def _end(self, live: Live) -> None:
        await live.close()
        self._alone = self._alone or live.blocked

    async def close(self) -> None:
        await asyncio.shield(self._close())

    async def _close(self) -> None:
        self.native([])
        await self._live.close()
        self._pool.tidy(self._live.host)
        await self._clear()

    async def _clear(self) -> None:
        self._kept.clear()
        self._census.clear()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    # Checkpoints

    @property
    def checkpoints(self) -> dict[str, ForkReport]:
        return self._census.copy()

    async def checkpoint(self, name: str) -> float | str:
        file = self._folder / uuid4().hex
        try:
            async with asyncio.timeout(_KEEP):
                kept = await self._live.ask(words.Keep(file=str(file)))
        except TimeoutError:
            await self.kill()
            return "it did not answer when one was to be taken"
        if not isinstance(kept, words.Kept):
            return "the sandbox ended"
        if kept.why_not:
            return kept.why_not
        self._memory = kept.memory
        about: dict[str, Any] = {"variables": kept.variables, "functions": kept.functions}
        self._drop(name)
        self._kept[name] = _Kept(file=file, size=kept.size, about=about, native=self._native)
        self._census[name] = _CLEAN
        return kept.seconds

    async def thin_out(self, named: set[str]) -> None:
        older = list(self._kept)[:-1]
        total = sum(each.size for each in self._kept.values())
        for name in [name for name in older if name not in named] + [name for name in older if name in named]:
            if total <= self._spec.checkpoint_bytes:
                break
            total -= self._kept[name].size
            self._drop(name)

    async def sizes(self) -> dict[str, int]:
        return {name: each.size for name, each in self._kept.items()}

    def memory(self) -> int:
        return self._memory + sum(each.size for each in self._kept.values())

    async def restore(self, name: str) -> None:
        if name != START and name not in self._kept:
            raise OperationFailed("That checkpoint is not kept any more.")
        image = str(self._kept[name].file) if name != START else self._began
        old = self._live
        try:
            await self._begin(image)
        except OperationFailed:
            self._drop(name)  # the caller tries the next one
            raise
        await self._end(old)
        self.native(self._kept[name].native if name != START else [])  # of a start with some the next run tells
        self._pool.tidy(self._live.host)

    def forget(self, name: str) -> None:
        self._drop(name)

    def _drop(self, name: str) -> None:
        self._census.pop(name, None)
        kept = self._kept.pop(name, None)
        if kept is not None:
            with contextlib.suppress(OSError):
                kept.file.unlink()

    # Snapshots

    async def write(self, name: str, draft: Draft, *, base: str, limit: int, values: bool) -> Written:
        if name not in self._kept:
            raise OperationFailed("That checkpoint is not kept any more.")
        kept, version = self._kept[name], (await self._live.host.hello()).version
        write = writing.write
        return await asyncio.to_thread(write, kept.file, draft, version=version, limit=limit, about=kept.about)

    async def load(self, recipe: Recipe) -> Restored:
        begun = time.perf_counter()
        file = self._folder / uuid4().hex
        try:
            await asyncio.to_thread(writing.read, recipe, file)
            old = self._live
            await self._begin(str(file))
            await self._end(old)
            self.native([])  # what it has the next run tells
        except OperationFailed as error:
            await self.restore(START)
            raise OperationFailed(str(error).rstrip(".")) from error  # the caller ends the sentence
        finally:
            file.unlink(missing_ok=True)
        found = await self._live.ask(messages.Inspect())
        variables = len(found.variables) + len(found.functions) if isinstance(found, messages.Inspected) else 0
        return Restored(variables=variables, lost=(), notes=(), seconds=time.perf_counter() - begun)

    async def branch(self, name: str, spec: KernelSpec) -> WasmKernel:
        if name != START and name not in self._kept:
            raise OperationFailed("That checkpoint is not kept any more.")
        image = self._kept[name].file if name != START else Path(self._began) if self._began else None
        make = replace(self._make, workspace=spec.workspace)
        return await WasmKernel.start(self._pool, self._calls, self._images.parent, spec, make, image)
