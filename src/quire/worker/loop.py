"""The worker's life: read a request, write its events, until the parent hangs up."""

from __future__ import annotations

import builtins
import io
import os
import platform
import signal
import sys
import types
from typing import Any

from quire.wire import frames, messages
from quire.wire.messages import Inspect, Inspected, Read, Ready, Request, Run, Value
from quire.worker import channel as channels
from quire.worker import display, figures, namespace
from quire.worker.executor import Executor, raised


class InputNotAvailable(RuntimeError):
    """A cell asked for input where nobody can answer."""


def serve(channel: channels.Channel) -> None:
    """Answer requests until the parent closes the socket."""
    channels.line_buffer_c()
    worker = _Worker(channel)
    decoder = frames.Decoder(messages.REQUESTS)
    channel.send(Ready(version=messages.VERSION, python=platform.python_version()))
    while data := channel.receive(1 << 16):
        for request in decoder.feed(data):
            worker.answer(request)


class _Worker:
    def __init__(self, channel: channels.Channel) -> None:
        self._channel = channel
        self._executor = Executor(channel.send)
        self._running = False
        self._descriptors = channels.Descriptors()
        self._streams: dict[str, io.TextIOWrapper] = {}
        self._given_up: list[io.TextIOWrapper | None] = []
        self._own_streams()
        figures.show_event = channel.send
        builtins.display = self._display  # type: ignore[attr-defined]
        builtins.input = _no_input
        signal.signal(signal.SIGINT, self._on_interrupt)

    def answer(self, request: Request) -> None:
        match request:
            case Run():
                self._run(request)
            case Inspect():
                variables, functions = namespace.describe(self._executor.namespace)
                self._channel.send(Inspected(variables=variables, functions=functions))
            case Read(name=name):
                self._channel.send(self._read(name))

    def _run(self, request: Run) -> None:
        self._own_streams()
        signal.signal(signal.SIGINT, self._on_interrupt)  # a cell before may have replaced it
        self._channel.interrupted = False
        self._running = True
        try:
            finished = self._executor.execute(request)
        except KeyboardInterrupt as late:  # it came while the outcome was being reported
            self._channel.send(raised(late))
            finished = messages.Finished(run=request.run, outcome="interrupted")
        finally:
            self._running = False
        self._channel.send(finished)

    def _on_interrupt(self, number: int, frame: types.FrameType | None) -> None:
        if not self._running:
            return
        if self._channel.sending:
            self._channel.interrupted = True
        else:
            raise KeyboardInterrupt

    def _display(self, *values: Any, raw: bool = False, metadata: dict[str, Any] | None = None) -> None:
        """Show each value now; with raw=True each is a MIME bundle."""
        for value in values:
            self._channel.send(display.shown(value, metadata) if raw else display.displayed(value, result=False))

    def _read(self, name: str) -> Value:
        if name not in self._executor.namespace:
            return Value(value=[], what="")
        value = self._executor.namespace[name]
        return Value(value=namespace.as_json(value), what=namespace.type_of(value))

    def _own_streams(self) -> None:
        """A cell before may have closed, replaced or redirected them: this one's prints are seen again."""
        self._descriptors.put_back()
        for name, fd in (("stdout", 1), ("stderr", 2)):
            if not channels.usable(self._streams.get(name)):
                # the old one is never let go: a thread inside print() holds no reference to what it writes to
                self._given_up.append(self._streams.get(name))
                self._streams[name] = channels.open_stream(self._channel, name, fd)
            setattr(sys, name, self._streams[name])
            setattr(sys, f"__{name}__", self._streams[name])


def _no_input(prompt: object = "") -> str:
    raise InputNotAvailable(
        f"input({str(prompt)!r}) has nobody to answer it here. Put the value into the code instead."
    )


def quiet_stdin() -> None:
    """Nothing to read on fd 0: a program that waits for input sees its end at once."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
