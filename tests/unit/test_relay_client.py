"""The kernel's end of the relay, on a real socket, with a server of the test's own at the other end."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from quire.wire import frames
from quire.wire.relay import Called, Refused, Returned
from quire.worker.capabilities.errors import ApprovalDenied, CapabilityGone, ToolError, ToolTimeout
from tests.support.relay_server import DEADLINE, Pair, Server, echo


def never(server: Server, called: Called) -> None:
    pass


class Shuffled:
    """Answers by dozens, in any order; `most` calls come in all."""

    def __init__(self, most: int, batch: int = 12) -> None:
        self._left = most
        self._batch = batch
        self._held: list[Called] = []
        self._chance = random.Random(1)

    def __call__(self, server: Server, called: Called) -> None:
        self._held.append(called)
        self._left -= 1
        if len(self._held) >= self._batch or self._left == 0:
            self._chance.shuffle(self._held)
            for each in self._held:
                server.send(Returned(call=each.call, value={"back": each.given}))
            self._held.clear()


def test_a_call_is_answered(pair: Pair) -> None:
    pair.serve(echo)
    assert pair.client.call("tool", capability="c", method="m", given={"a": [1, "é"]}) == {"back": {"a": [1, "é"]}}


def test_calls_of_50_threads_answered_out_of_order_each_get_their_own(pair: Pair) -> None:
    pair.serve(Shuffled(200))
    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(lambda at: pair.client.call("tool", given={"at": at}), range(200), timeout=DEADLINE))
    assert found == [{"back": {"at": at}} for at in range(200)]
    assert not pair.client._waiting


async def test_300_calls_of_one_loop_each_get_their_own(pair: Pair) -> None:
    pair.serve(Shuffled(300))
    calls = [pair.client.call_async("tool", given={"at": at}) for at in range(300)]
    async with asyncio.timeout(DEADLINE):
        assert await asyncio.gather(*calls) == [{"back": {"at": at}} for at in range(300)]
    assert not pair.client._waiting and not pair.client._listening


async def test_threads_and_two_loops_share_the_socket(pair: Pair) -> None:
    pair.serve(Shuffled(300, 1))

    async def many(first: int) -> list[Any]:
        return await asyncio.gather(*(pair.client.call_async("tool", given={"at": first + at}) for at in range(100)))

    def blocking(first: int) -> list[Any]:
        return [pair.client.call("tool", given={"at": first + at}) for at in range(50)]

    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(asyncio.run, many(100)), pool.submit(blocking, 200), pool.submit(blocking, 250)]
        async with asyncio.timeout(DEADLINE):
            here = await many(0)
            rest = [await asyncio.wrap_future(each) for each in others]
    found = [each["back"]["at"] for part in (here, *rest) for each in part]
    assert found == list(range(300))


async def test_a_blocking_call_inside_a_loop_hands_the_loop_its_answers(pair: Pair) -> None:
    pair.serve(echo)
    task = asyncio.create_task(pair.client.call_async("tool", given={"at": 1}))
    await asyncio.sleep(0)
    assert pair.client.call("tool", given={"at": 2}) == {"back": {"at": 2}}
    async with asyncio.timeout(DEADLINE):
        assert await task == {"back": {"at": 1}}


def test_large_answers_and_large_arguments_arrive_whole(pair: Pair) -> None:
    pair.serve(echo)
    text = "x" * 3_000_000
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda at: pair.client.call("tool", given={"t": f"{at}{text}"}), range(4), timeout=60))
    assert [each["back"]["t"][0] for each in found] == ["0", "1", "2", "3"]
    assert all(len(each["back"]["t"]) == 3_000_001 for each in found)


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("tool", ToolError),
        ("refused", ToolError),
        ("cancelled", ToolError),
        ("timeout", ToolTimeout),
        ("denied", ApprovalDenied),
        ("gone", CapabilityGone),
    ],
)
def test_a_refusal_is_raised_as_its_kind(pair: Pair, kind: str, raised: type[ToolError]) -> None:
    pair.serve(lambda server, called: server.send(Refused(call=called.call, kind=kind, message="No.", hint="Do.")))
    with pytest.raises(ToolError) as caught:
        pair.client.call("tool")
    assert type(caught.value) is raised and str(caught.value) == "No. Do." and caught.value.hint == "Do."


def test_what_cannot_be_sent_is_refused_before_it_is(pair: Pair) -> None:
    server = pair.serve(echo)
    with pytest.raises(ValueError, match="too large"):
        pair.client.call("tool", given={"text": "x" * (frames.FROM_CODE.parts + 1)})
    deep: Any = []
    for _ in range(60):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deeply"):
        pair.client.call("tool", given={"deep": deep})
    assert server.called.empty() and pair.client.call("tool") == {"back": {}}


def test_an_interrupt_ends_a_call_in_the_main_thread_and_gives_it_up(pair: Pair) -> None:
    def interrupt(server: Server, called: Called) -> None:
        if called.given:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            echo(server, called)

    server = pair.serve(interrupt)
    before = signal.signal(signal.SIGINT, lambda number, frame: pair.interrupts.deliver(KeyboardInterrupt()))
    try:
        with pytest.raises(KeyboardInterrupt):
            pair.client.call("tool", given={"wait": True})
    finally:
        signal.signal(signal.SIGINT, before)
    assert server.given_up.get(timeout=DEADLINE) == server.called.get(timeout=DEADLINE).call
    assert not pair.interrupts.held and not pair.client._waiting
    server.send(Returned(call=1, value={"late": True}))
    assert pair.client.call("tool") == {"back": {}}


def test_many_interrupts_tear_no_frame_and_lose_no_other_call(pair: Pair) -> None:
    pair.serve(echo)
    ended = threading.Event()

    def storm() -> None:
        main = threading.main_thread().ident
        assert main is not None
        while not ended.wait(0.0005):
            signal.pthread_kill(main, signal.SIGINT)

    calling = [False]

    def once(number: int, frame: Any) -> None:
        if calling[0]:
            calling[0] = False
            pair.interrupts.deliver(KeyboardInterrupt())

    before = signal.signal(signal.SIGINT, once)
    interrupted = 0
    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(pair.client.call, "tool", given={"at": at}) for at in range(300)]
        storming = threading.Thread(target=storm)
        storming.start()
        for at in range(1_000):
            try:
                calling[0] = True
                assert pair.client.call("tool", given={"at": at}) == {"back": {"at": at}}
                calling[0] = False
            except KeyboardInterrupt:
                interrupted += 1
        ended.set()
        storming.join()
        signal.signal(signal.SIGINT, before)
        assert [each.result(DEADLINE)["back"]["at"] for each in others] == list(range(300))
    assert interrupted and not pair.interrupts.held
    assert pair.client.call("tool", given={"at": -1}) == {"back": {"at": -1}}


def test_when_the_thread_that_reads_is_interrupted_another_takes_over(pair: Pair) -> None:
    waiting = threading.Event()

    def answer(server: Server, called: Called) -> None:
        if called.given["who"] == "main":
            waiting.set()
        elif called.given["who"] == "late":
            os.kill(os.getpid(), signal.SIGINT)

    server = pair.serve(answer)
    before = signal.signal(signal.SIGINT, lambda number, frame: pair.interrupts.deliver(KeyboardInterrupt()))
    with ThreadPoolExecutor(1) as pool:

        def other() -> Any:
            assert waiting.wait(DEADLINE)
            return pair.client.call("tool", given={"who": "late"})

        late = pool.submit(other)
        try:
            with pytest.raises(KeyboardInterrupt):
                pair.client.call("tool", given={"who": "main"})
        finally:
            signal.signal(signal.SIGINT, before)
        assert server.given_up.get(timeout=DEADLINE) == 1
        server.send(Returned(call=2, value={"found": True}))
        assert late.result(DEADLINE) == {"found": True}


async def test_a_cancelled_call_is_given_up_and_its_answer_dropped(pair: Pair) -> None:
    server = pair.serve(lambda server, called: None if called.given else echo(server, called))
    task = asyncio.create_task(pair.client.call_async("tool", given={"wait": True}))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await task
    assert server.given_up.get(timeout=DEADLINE) == 1
    server.send(Returned(call=1, value={}))
    async with asyncio.timeout(DEADLINE):
        assert await pair.client.call_async("tool") == {"back": {}}
    assert not pair.client._listening


async def test_when_the_server_hangs_up_everyone_who_waits_is_told(pair: Pair) -> None:
    server = pair.serve(never)
    with ThreadPoolExecutor(3) as pool:
        threads = [pool.submit(pair.client.call, "tool") for _ in range(3)]
        tasks = [asyncio.create_task(pair.client.call_async("tool")) for _ in range(3)]
        for _ in range(6):
            await asyncio.to_thread(server.called.get, timeout=DEADLINE)
        server.sock.shutdown(socket.SHUT_RDWR)
        async with asyncio.timeout(DEADLINE):
            found = await asyncio.gather(*tasks, *map(asyncio.wrap_future, threads), return_exceptions=True)
    assert [type(each) for each in found] == [CapabilityGone] * 6
    with pytest.raises(CapabilityGone, match="ended"):
        pair.client.call("tool")


def test_in_a_process_that_the_cell_forked_a_call_says_where_to_call_from(pair: Pair) -> None:
    server = pair.serve(never)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(pair.client.call, "tool") for _ in range(2)]  # which hold what locks there are
        for _ in range(2):
            server.called.get(timeout=DEADLINE)
        hear, say = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                pair.client.call("tool")
            except BaseException as error:
                os.write(say, f"{type(error).__name__}: {error}".encode())
            finally:
                os._exit(0)
        os.close(say)
        os.waitpid(pid, 0)
        with os.fdopen(hear, "rb") as said:
            assert said.read().startswith(b"CapabilityGone: Capabilities are called from the notebook's own process")
        server.send(Returned(call=1, value={}), Returned(call=2, value={}))
        assert [each.result(DEADLINE) for each in waiting] == [{}, {}]


def test_in_a_woken_copy_what_waited_ends_and_calls_go_to_the_new_server(pair: Pair) -> None:
    first = pair.serve(never)
    loop = asyncio.new_event_loop()

    async def begin() -> asyncio.Task[Any]:
        task = asyncio.create_task(pair.client.call_async("tool"))
        await asyncio.sleep(0)
        return task

    task = loop.run_until_complete(begin())
    first.called.get(timeout=DEADLINE)
    pair.client.leave()  # as a copy does,
    pair.client.forget_loops()  # and when it is woken
    pair.serve(echo)
    with pytest.raises(CapabilityGone, match="put back"):
        loop.run_until_complete(asyncio.wait_for(task, DEADLINE))
    assert loop.run_until_complete(pair.client.call_async("tool", given={"a": 1})) == {"back": {"a": 1}}
    assert pair.client.call("tool", given={"a": 2}) == {"back": {"a": 2}}
    loop.close()


def test_the_socket_has_a_high_number_and_no_child_inherits_it(pair: Pair) -> None:
    pair.serve(echo)
    [number] = pair.client.descriptors
    assert number >= 200 and not os.get_inheritable(number)


def test_errors_keep_what_they_know_when_they_are_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    monkeypatch.setattr(builtins, "ToolTimeout", ToolTimeout, raising=False)  # where the worker puts it
    error = ToolTimeout("Too slow.", tool="mail.send", args_given={"to": "a"}, hint="Wait.")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (ToolTimeout, "mail.send: Too slow. Wait.")
    assert (again.tool, again.args_given, again.hint) == ("mail.send", {"to": "a"}, "Wait.")


def test_what_comes_while_interrupts_are_held_is_raised_when_they_are_let_go(pair: Pair) -> None:
    assert pair.interrupts.hold() and not pair.interrupts.hold()
    pair.interrupts.deliver(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        pair.interrupts.release()
    with pytest.raises(KeyboardInterrupt):
        pair.interrupts.deliver(KeyboardInterrupt())
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(pair.interrupts.hold).result(DEADLINE)  # other threads are never interrupted


async def test_a_thread_is_not_left_asleep_when_a_loop_hears_its_answer(pair: Pair) -> None:
    pair.serve(lambda server, called: None if called.method == "never" else echo(server, called))
    held = asyncio.ensure_future(pair.client.call_async("tool", method="never"))  # the loop listens
    stop = asyncio.Event()

    async def busy() -> None:
        while not stop.is_set():
            await asyncio.sleep(0)

    spinning = asyncio.ensure_future(busy())
    async with asyncio.timeout(DEADLINE):
        for n in range(200):
            answer = await asyncio.to_thread(pair.client.call, "tool", given={"n": n})
            assert answer == {"back": {"n": n}}
    stop.set()
    await spinning
    held.cancel()
    with pytest.raises(asyncio.CancelledError):
        await held


def test_a_task_of_a_closed_loop_does_not_keep_a_copy_from_waking(pair: Pair) -> None:
    pair.serve(never)
    loop = asyncio.new_event_loop()

    async def begin() -> asyncio.Task[Any]:
        task = asyncio.ensure_future(pair.client.call_async("tool"))
        await asyncio.sleep(0)
        return task

    waiting = loop.run_until_complete(begin())
    loop.close()
    pair.serve(echo)
    assert pair.client.call("tool", given={"n": 1}) == {"back": {"n": 1}}
    assert not waiting.done()
