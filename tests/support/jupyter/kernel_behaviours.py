"""What every kernel does, however the Jupyter server is reached. Each function is one behaviour."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from quire.clients.jupyter.ports import Execution, JupyterError, KernelConnection, KernelDied, Missing
from tests.support.jupyter.places import Place, printed, run, until


@asynccontextmanager
async def started(place: Place) -> AsyncIterator[KernelConnection]:
    """A kernel, connected to, and ended afterwards."""
    info = await place.jupyter.kernels.start()
    try:
        connection = await place.jupyter.kernels.connect(info.id)
        yield connection
        await connection.close()
    finally:
        await place.jupyter.kernels.shut_down(info.id)


@asynccontextmanager
async def shared(place: Place) -> AsyncIterator[KernelConnection]:
    """A kernel that several behaviours use one after the other: each leaves it idle, and none ends it."""
    path = "shared.ipynb"
    if not (place.server.root / path).exists():
        place.server.notebook(name=path)
    info = await place.jupyter.kernels.find_for_document(path) or await place.jupyter.kernels.start(path=path)
    connection = await place.jupyter.kernels.connect(info.id)
    yield connection
    await connection.close()


async def ended(execution: Execution) -> str:
    """How: the server interrupts what runs before it ends a kernel, and which is quicker is open."""
    async with asyncio.timeout(60):
        try:
            while (said := await execution.next_message()).kind != "execute_reply":
                pass
            return str(said.content.get("ename", "ok"))
        except KernelDied:
            return "KernelDied"


async def reply_comes_after_all_outputs(at: Place) -> None:
    async with shared(at) as kernel:
        said = await run(kernel, "import sys\nprint('a')\nprint('b', file=sys.stderr)\n6 * 7")
        kinds = [each.kind for each in said if each.kind != "status"]
        assert kinds[0] == "execute_input" and kinds[-2:] == ["execute_result", "execute_reply"]
        assert sorted(printed(said).split()) == ["a", "b"]
        assert said[-1].content["status"] == "ok"
        assert [each.content["execution_state"] for each in said if each.kind == "status"] == ["busy", "idle"]
        many = await run(kernel, "for i in range(500): print(i, flush=True)")
        assert printed(many) == "".join(f"{i}\n" for i in range(500))


async def error_is_a_normal_reply(at: Place) -> None:
    async with shared(at) as kernel:
        said = await run(kernel, "1 / 0")
        assert said[-1].content["status"] == "error" and said[-1].content["ename"] == "ZeroDivisionError"
        assert printed(await run(kernel, "print('on')")) == "on\n"


async def silent_expression_leaves_no_trace(at: Place) -> None:
    async with shared(at) as kernel:
        before = (await run(kernel, "x = 5"))[-1].content["execution_count"]
        said = await run(kernel, "", silent=True, store_history=False, user_expressions={"it": "x + 1"})
        assert said[-1].content["user_expressions"]["it"]["data"]["text/plain"] == "6"
        assert (await run(kernel, "1"))[-1].content["execution_count"] == before + 1


async def input_request_is_answered(at: Place) -> None:
    async with shared(at) as kernel:
        execution = await kernel.execute("print(input('name? ') + '!')", allow_stdin=True)
        said = []
        while not said or said[-1].kind != "execute_reply":
            said.append(await asyncio.wait_for(execution.next_message(), 60))
            if said[-1].kind == "input_request":
                assert said[-1].content["prompt"] == "name? "
                await execution.reply("Ann")
        assert printed(said) == "Ann!\n"
        with pytest.raises(JupyterError, match="asked for nothing"):
            await execution.reply("again")


async def buffers_of_a_message_arrive(at: Place) -> None:
    async with shared(at) as kernel:
        said = await run(
            kernel,
            "k = get_ipython().kernel\n"
            "k.session.send(k.iopub_socket, 'display_data', {'data': {}, 'metadata': {}}, "
            "parent=k.get_parent(), ident=b'display_data', buffers=[b'\\x00\\xff', b''])",
        )
        [display] = [each for each in said if each.kind == "display_data"]
        assert display.buffers == (b"\x00\xff", b"")


async def messages_reach_their_own_execution(at: Place) -> None:
    async with shared(at) as kernel:
        every = await asyncio.gather(*(run(kernel, f"print({n})") for n in range(8)))
        assert [printed(said) for said in every] == [f"{n}\n" for n in range(8)]


async def waiting_for_a_message_can_be_cancelled_and_repeated(at: Place) -> None:
    async with shared(at) as kernel:
        execution = await kernel.execute("input()", allow_stdin=True)
        while (await asyncio.wait_for(execution.next_message(), 60)).kind != "input_request":
            pass
        with pytest.raises(TimeoutError):
            while True:  # what comes on the other channel may come later
                await asyncio.wait_for(execution.next_message(), 0.5)
        await execution.reply("x")
        while (await asyncio.wait_for(execution.next_message(), 60)).kind != "execute_reply":
            pass


async def an_interrupt_ends_what_runs(at: Place) -> None:
    async with shared(at) as kernel:
        execution = await kernel.execute("print('go', flush=True)\nimport time\ntime.sleep(600)")
        while (await asyncio.wait_for(execution.next_message(), 60)).kind != "stream":
            pass
        await kernel.interrupt()
        said = [await asyncio.wait_for(execution.next_message(), 60)]
        while said[-1].kind != "execute_reply":
            said.append(await asyncio.wait_for(execution.next_message(), 60))
        assert said[-1].content["ename"] == "KeyboardInterrupt"
        assert printed(await run(kernel, "print(1)")) == "1\n"


async def a_restart_ends_what_runs_and_leaves_a_fresh_kernel(at: Place) -> None:
    async with started(at) as kernel:
        await run(kernel, "x = 1")
        execution = await kernel.execute("import time; time.sleep(600)")
        while (await asyncio.wait_for(execution.next_message(), 60)).kind != "execute_input":
            pass
        restart = asyncio.create_task(kernel.restart())
        with pytest.raises(KernelDied, match="restarted"):
            await asyncio.wait_for(execution.next_message(), 60)
        await restart
        assert kernel.alive
        assert (await run(kernel, "x"))[-1].content["ename"] == "NameError"


async def a_restart_by_a_person_is_noticed(at: Place) -> None:
    async with started(at) as kernel:
        theirs = await at.person.kernels.connect(kernel.info.id)
        execution = await kernel.execute("import time; time.sleep(600)")
        while (await asyncio.wait_for(execution.next_message(), 60)).kind != "execute_input":
            pass
        restart = asyncio.create_task(theirs.restart())
        assert await ended(execution) in ("KernelDied", "KeyboardInterrupt")
        await restart
        assert printed(await run(kernel, "print('new')")) == "new\n"


async def a_kernel_that_is_killed_is_noticed_and_comes_back(at: Place) -> None:
    async with started(at) as kernel:
        execution = await kernel.execute("print('go', flush=True)\nimport time; time.sleep(600)")
        while (await asyncio.wait_for(execution.next_message(), 60)).kind != "stream":
            pass
        os.kill(at.server.kernel_pid(kernel.info.id), signal.SIGKILL)
        with pytest.raises(KernelDied, match="gone"):
            await asyncio.wait_for(execution.next_message(), 60)
        assert printed(await run(kernel, "print('new')")) == "new\n"
        assert kernel.alive


async def a_kernel_that_is_shut_down_is_noticed(at: Place) -> None:
    async with started(at) as kernel:
        execution = await kernel.execute("print('go', flush=True)\nimport time; time.sleep(600)")
        while (await asyncio.wait_for(execution.next_message(), 60)).kind != "stream":
            pass
        await at.person.kernels.shut_down(kernel.info.id)
        assert await ended(execution) in ("KernelDied", "KeyboardInterrupt")
        with pytest.raises(JupyterError):
            await run(kernel, "1")
        await at.jupyter.kernels.shut_down(kernel.info.id)


async def a_documents_kernel_is_found_by_its_path(at: Place) -> None:
    path = at.server.notebook("1")
    kernels = at.jupyter.kernels
    assert await kernels.find_for_document(path) is None
    info = await kernels.start(path=path)
    try:
        assert info.paths == (path,) and info.spec == "python3" and info.language == "python"
        for side in (at.jupyter, at.person):
            found = await side.kernels.find_for_document(path)
            assert found is not None and found.id == info.id
        assert info.id in [each.id for each in await kernels.list_running()]
        with pytest.raises(JupyterError, match="uses the kernel"):
            await kernels.start(path=path)
        other = await kernels.start()
        with pytest.raises(JupyterError, match="uses the kernel"):
            await kernels.assign(path, other.id)
        await kernels.assign(path, info.id)
        second = at.server.notebook("2")
        await kernels.assign(second, other.id)
        found = await kernels.find_for_document(second)
        assert found is not None and found.id == other.id
        await kernels.shut_down(other.id)
    finally:
        await kernels.shut_down(info.id)
        await kernels.shut_down(info.id)
    assert await kernels.find_for_document(path) is None


async def a_kernel_exists_until_it_is_shut_down(at: Place) -> None:
    kernels = at.jupyter.kernels
    info = await kernels.start()
    assert await kernels.exists(info.id)
    await kernels.shut_down(info.id)
    for kernel in (info.id, "00000000-0000-0000-0000-000000000000", "python3", "../x", ""):
        assert not await kernels.exists(kernel)


async def a_kernel_that_a_person_uses_is_shared(at: Place) -> None:
    path = at.server.notebook("1")
    info = await at.person.kernels.start(path=path)
    theirs = await at.person.kernels.connect(info.id)
    await run(theirs, "x = 41")
    found = await at.jupyter.kernels.find_for_document(path)
    assert found is not None
    ours = await at.jupyter.kernels.connect(found.id)
    assert printed(await run(ours, "print(x + 1)")) == "42\n"
    [listed] = [each for each in await at.jupyter.kernels.list_running() if each.id == info.id]
    assert listed.connections == 2
    await ours.close()
    await ours.close()
    assert printed(await run(theirs, "print(x)")) == "41\n"
    await theirs.close()
    await at.person.kernels.shut_down(info.id)


async def a_connection_to_a_busy_kernel_is_made_and_waits_its_turn(at: Place) -> None:
    info = await at.person.kernels.start()
    theirs = await at.person.kernels.connect(info.id)
    execution = await theirs.execute("input()", allow_stdin=True)
    while (await asyncio.wait_for(execution.next_message(), 60)).kind != "input_request":
        pass
    ours = await at.jupyter.kernels.connect(info.id)
    after = asyncio.create_task(run(ours, "print('after')"))
    await until(lambda: ours.info.state == "busy")
    await execution.reply("")
    assert printed(await after) == "after\n"
    await ours.close()
    await at.person.kernels.shut_down(info.id)


async def missing_kernel_and_kernelspec_are_errors(at: Place) -> None:
    kernels = at.jupyter.kernels
    default, specs = await kernels.list_specs()
    assert default == "python3" and "python3" in [each.name for each in specs]
    with pytest.raises(Missing, match=r"'fortran'.*python3"):
        await kernels.start(spec="fortran")
    for name in ("b6bfe7a4-0000-0000-0000-000000000000", "../x", ""):
        with pytest.raises(Missing):
            await kernels.connect(name)
        with pytest.raises(Missing):
            await kernels.assign("x.ipynb", name)
    with pytest.raises(JupyterError, match="outside"):
        await kernels.start(path="../x.ipynb")
    await kernels.shut_down("b6bfe7a4-0000-0000-0000-000000000000")
