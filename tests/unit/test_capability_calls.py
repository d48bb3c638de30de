"""The server's end of a relay, on a real socket, with a kernel of the test's own at the other end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from quire.runtimes.python.capability_calls import CapabilityCalls
from quire.wire import frames, relay
from quire.wire.relay import Answer, Called, Refused, Returned

DEADLINE = 60.0


def called(number: int, **given: Any) -> bytes:
    return frames.encode(Called(call=number, do="tool", given=given))


async def echo(call: Called) -> Answer:
    return Returned(call=call.call, value={"size": len(str(call.given))})


def opened(answer: Callable[[Called], Awaitable[Answer]]) -> tuple[CapabilityCalls, socket.socket, list[str]]:
    broken: list[str] = []
    ours, theirs = socket.socketpair()
    return CapabilityCalls(ours, answer, broken.append), theirs, broken


def answers(kernel: socket.socket, count: int) -> list[Answer]:
    decoder, found = frames.Decoder(relay.SERVER_MESSAGES), list[Answer]()
    while len(found) < count:
        found += decoder.feed(kernel.recv(1 << 16))
    return found


async def test_many_calls_before_reading_are_answered() -> None:
    calls, kernel, _ = opened(echo)
    kernel.settimeout(DEADLINE)

    def send_all_then_read() -> list[Answer]:
        for number in range(90):
            kernel.sendall(called(number, text="x" * 1_000_000))
        return answers(kernel, 90)

    found = await asyncio.to_thread(send_all_then_read)
    assert sorted(each.call for each in found) == list(range(90))
    calls.close()
    kernel.close()


async def test_closing_during_an_answer_unregisters_the_socket() -> None:
    async def large(call: Called) -> Answer:
        return Returned(call=call.call, value={"text": "x" * 4_000_000})

    loop = asyncio.get_running_loop()
    calls, kernel, _ = opened(large)
    number = calls._sock.fileno()
    kernel.sendall(called(1))
    await loop.run_in_executor(None, kernel.recv, 100)  # it is being sent
    sending = calls._send_task
    assert sending is not None
    calls.close()
    async with asyncio.timeout(DEADLINE):
        await asyncio.wait([sending])
    kernel.close()
    pairs = [socket.socketpair() for _ in range(20)]
    again = [one for pair in pairs for one in pair if one.fileno() == number]
    assert again, "the number is free for another socket"
    for one in again:
        loop.add_reader(one.fileno(), lambda: None)
        loop.remove_reader(one.fileno())
    for pair in pairs:
        for one in pair:
            one.close()


async def test_calls_beyond_the_limit_are_refused() -> None:
    release = asyncio.Event()

    async def held(call: Called) -> Answer:
        await release.wait()
        return await echo(call)

    calls, kernel, _ = opened(held)
    kernel.settimeout(DEADLINE)
    kernel.sendall(b"".join(called(number) for number in range(1_003)))
    refused = await asyncio.to_thread(answers, kernel, 3)
    assert all(isinstance(each, Refused) and "under way already" in each.message for each in refused)
    release.set()
    assert len(await asyncio.to_thread(answers, kernel, 1_000)) == 1_000
    calls.close()
    kernel.close()


async def test_kernel_that_never_reads_is_closed() -> None:
    async def large(call: Called) -> Answer:
        return Returned(call=call.call, value={"text": "x" * 1_000_000 if call.call <= 100 else "x"})

    _, kernel, broken = opened(large)
    kernel.setblocking(False)
    number = 0
    async with asyncio.timeout(DEADLINE):
        while not broken:
            number += 1
            with suppress(BlockingIOError, BrokenPipeError):
                await asyncio.get_running_loop().sock_sendall(kernel, called(number))
            await asyncio.sleep(0)
    assert broken == ["it makes calls and does not read the answers"]
    kernel.close()


async def test_invalid_message_is_reported_once_and_closes() -> None:
    calls, kernel, broken = opened(echo)
    kernel.sendall(b"nonsense" * 10)
    async with asyncio.timeout(DEADLINE):
        while not broken:
            await asyncio.sleep(0.01)
    assert len(broken) == 1 and calls._sock.fileno() == -1
    assert await asyncio.to_thread(kernel.recv, 10) == b""
    kernel.close()
