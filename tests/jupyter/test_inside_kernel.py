"""A kernel's channels, spoken to from inside the server: a kernel of sockets alone, whose moments the test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import zmq
from jupyter_client.session import Session
from zmq.eventloop.zmqstream import ZMQStream

from quire.clients.jupyter.kernels.local_kernel import LocalKernel
from quire.clients.jupyter.kernels.messages import KernelMessage, create_message
from quire.clients.jupyter.ports import JupyterError, KernelInfo

KINDS = {"iopub": zmq.SUB, "shell": zmq.DEALER, "control": zmq.DEALER, "stdin": zmq.DEALER}


class Sockets:
    """Of a kernel, and its manager: `stdin` listens when it is told to."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.session = Session(key=b"key")
        self.shell, self.stdin = self.context.socket(zmq.ROUTER), self.context.socket(zmq.ROUTER)
        self.stdin.setsockopt(zmq.ROUTER_MANDATORY, 1)  # who is not known is an error here, and not passed over
        port = self.stdin.bind_to_random_port("tcp://127.0.0.1")
        self.stdin.unbind(f"tcp://127.0.0.1:{port}")
        self.ports = [self.shell.bind_to_random_port("tcp://127.0.0.1"), port]

    def __getattr__(self, name: str) -> Any:
        channel = name.removeprefix("connect_")
        if channel not in KINDS:
            raise AttributeError(name)

        def connected(identity: bytes) -> ZMQStream:
            socket = self.context.socket(KINDS[channel])
            socket.identity = identity
            socket.connect(f"tcp://127.0.0.1:{self.ports[channel == 'stdin']}")
            return ZMQStream(socket)

        return connected

    def listen(self) -> None:
        self.stdin.bind(f"tcp://127.0.0.1:{self.ports[1]}")

    def get_kernel(self, _: str) -> Sockets:
        return self

    def __contains__(self, _: str) -> bool:
        return True

    def close(self) -> None:
        self.context.destroy(linger=0)


@pytest.fixture
async def sockets() -> AsyncIterator[Sockets]:
    made = Sockets()
    yield made
    made.close()


@pytest.fixture
async def kernel(sockets: Sockets) -> AsyncIterator[LocalKernel]:
    made = LocalKernel(sockets, KernelInfo(id="k", spec="python3", state="idle"), lambda _: None)
    made._connect()
    yield made
    made._close_streams()


async def test_code_with_stdin_is_sent_after_the_stdin_channel_connects(sockets: Sockets, kernel: LocalKernel) -> None:
    sent = asyncio.ensure_future(kernel._send(execute_request(kernel, allow_stdin=True)))
    await asyncio.sleep(0.3)
    assert not sent.done() and not sockets.shell.poll(0)
    sockets.listen()
    await asyncio.wait_for(sent, 30)
    assert sockets.shell.poll(30_000)
    sockets.stdin.send_multipart([kernel._signer.bsession, b"a question"])  # raises where we are not known


async def test_code_without_stdin_is_sent_immediately(sockets: Sockets, kernel: LocalKernel) -> None:
    await asyncio.wait_for(kernel._send(execute_request(kernel, allow_stdin=False)), 30)
    assert sockets.shell.poll(30_000) and zmq.IMMEDIATE not in sockets.context.sockopts


async def test_closing_the_connection_fails_a_waiting_request(kernel: LocalKernel) -> None:
    sent = asyncio.ensure_future(kernel._send(execute_request(kernel, allow_stdin=True)))
    await asyncio.sleep(0.1)
    kernel._close_streams()
    kernel._mark_closed(JupyterError("It was closed."))
    with pytest.raises(JupyterError, match="It was closed"):
        await asyncio.wait_for(sent, 30)


def execute_request(kernel: LocalKernel, *, allow_stdin: bool) -> KernelMessage:
    return create_message("shell", "execute_request", {"code": "1", "allow_stdin": allow_stdin}, kernel._session_id)
