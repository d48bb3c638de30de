"""Cells of one language on the runtime alone, with all that a kernel can: `python cells.py RUNTIME ASSETS FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from quire.core.model import LOCAL, Died, KernelLimits, KernelSpec, NotebookId
from quire.runtimes.wasm.kernel import WasmKernel
from quire.runtimes.wasm.reach import Reach
from quire.runtimes.wasm.runtime import WasmRuntime
from quire.wire import messages, relay

LET = {"wasm-python": "", "wasm-javascript": "let "}
FOREVER = {"wasm-python": "while True: pass", "wasm-javascript": "while (true) {}"}
WRITE = {"wasm-python": "open('a', 'w').write('here')", "wasm-javascript": "files.write('a', 'here')"}


class Nobody:
    """Capabilities there are none."""

    async def call(self, spec: KernelSpec, called: relay.Called) -> relay.Answer:
        return relay.Refused(call=called.call, kind="refused", message="There are none.", hint="")

    def native(self, spec: KernelSpec, capabilities: list[dict[str, Any]]) -> None: ...


async def run(kernel: WasmKernel, code: str) -> Any:
    """What a cell showed as its value; how it died, where it did."""
    await kernel.begin(messages.Run(run="r", code=code, name="cell", count=1))
    shown = ""
    while not isinstance(event := await kernel.event(), messages.Finished | Died):
        if isinstance(event, messages.Displayed):
            shown = str(event.bundle["text/plain"])
    return event if isinstance(event, Died) else shown


async def main(language: str, assets: Path, folder: Path) -> None:
    reach = Reach(sandbox="auto", workspaces=(folder / "work",))
    made = WasmRuntime(
        language,
        program=language,
        calls=Nobody(),
        assets=assets,
        images=folder / "images",
        files=64,
        most_calls=100,
        reach=reach,
    )
    spec = KernelSpec(
        notebook=NotebookId("n"),
        name="n",
        owner=LOCAL,
        workspace=str(folder / "work" / "n"),
        limits=KernelLimits(memory=2**28),
        checkpoint_bytes=2**30,
    )
    async with asyncio.timeout(120), made.open() as runtime:
        about = await runtime.about()
        assert not about.why_not, about
        assert {layer.name: bool(layer.why_not) for layer in about.layers}["seccomp"], "these walls are Linux's"
        kernel = await runtime.start(spec)
        await run(kernel, f"{LET[language]}x = 41")
        taken = await kernel.checkpoint("one")
        assert isinstance(taken, float), taken
        await run(kernel, WRITE[language])
        assert (folder / "work" / "n" / "a").read_text() == "here"
        assert await run(kernel, "x = x + 1; x") == "42"
        await kernel.restore("one")
        assert await run(kernel, "x") == "41"
        branch = await kernel.branch("one", spec)
        assert await run(branch, "x + 2") == "43"
        await branch.close()
        asyncio.get_running_loop().call_later(0.5, kernel.interrupt)
        ended = await run(kernel, FOREVER[language])
        if isinstance(ended, Died):
            await kernel.restore("one")
        assert await run(kernel, "x") == "41"
        await kernel.close()
    print("all of it")


asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
