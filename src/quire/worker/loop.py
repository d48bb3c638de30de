"""The worker's life: read a request, write its events, until the parent hangs up."""

from __future__ import annotations

import builtins
import getpass
import io
import math
import os
import pathlib
import platform
import resource
import signal
import sys
import threading
import time
import types
from typing import Any, NoReturn

from quire.wire import frames, messages
from quire.wire.messages import (
    Answer,
    Asked,
    Checkpoint,
    Checkpointed,
    Enter,
    Entered,
    Inspect,
    Inspected,
    Load,
    Loaded,
    Native,
    Offer,
    Page,
    Read,
    Ready,
    Request,
    Run,
    Value,
)
from quire.worker import channel as channels
from quire.worker.capabilities.known import Known
from quire.worker.environment import blocked_hosts, hidden_variables, packages
from quire.worker.execution import event_loop, memory_reserve, namespace
from quire.worker.execution.errors import CpuTimeExceeded, InputNotAvailable, raised
from quire.worker.execution.executor import Executor
from quire.worker.execution.history import is_ours
from quire.worker.execution.interrupts import Interrupts
from quire.worker.execution.tracking import Makers
from quire.worker.output import tables
from quire.worker.processes import after_fork, copy_on_write, fork_report, process_tree, venv_exec
from quire.worker.processes.checkpoints import LIVE, Checkpoints
from quire.worker.processes.fork_interrupts import ForkInterrupts
from quire.worker.processes.supervisor import Live
from quire.worker.sandbox import apply
from quire.worker.snapshot import reader, surroundings, writer
from quire.worker.snapshot.pages import Watch

_FEW = 2  # checkpoints of a notebook that is only begun: it may stay idle, and then its pages stay shared


def live(begin: Live, enter: Enter | None = None) -> None:
    """Be a kernel's live process: answer requests until the parent closes the socket; with `enter`, one that has
    taken another's place after the first of them."""
    quiet_stdin()
    process_tree.oom_score("self", LIVE)
    sys.path.insert(_after_standard(), "")
    sys.argv = [""]
    _reseed()
    interrupts = Interrupts()
    channel = channels.Channel(interrupts)
    channel.connect(begin.descriptors[: channels.RELAY])
    channels.line_buffer_c()
    worker = _Worker(channel, interrupts, begin)
    if enter is None:
        worker.serve()
    worker.go_on(enter)


class _Worker:
    def __init__(self, channel: channels.Channel, interrupts: Interrupts, begin: Live) -> None:
        self._channel = channel
        self._interrupts = interrupts
        self._executor = Executor(channel.send)
        self._known = Known(interrupts, self._executor.namespace)
        self._known.relay.connect(begin.descriptors[channels.RELAY])
        self._makers = Makers(but=self._executor.history.numbered)
        self._cells: dict[str, str] = {}  # by run, what its cell is called
        subject = writer.Subject(self._executor.namespace, self._makers, self._cells, Watch())
        self._checkpoints = Checkpoints(begin.nursery, begin.keeper, subject)
        self._recipe = begin.descriptors[channels.DESCRIPTORS :]  # of a snapshot to load
        self._running = False
        self._taken = 0  # checkpoints
        self._inside = False  # where it was told to work
        self._trees: list[int] = []  # folders to mount there
        self._attempts = blocked_hosts.Attempts()
        self._questions = 0
        self._cpu_seconds = 0.0
        self._decoder = frames.Decoder(messages.REQUESTS)
        self._descriptors = channels.Descriptors()
        self._streams: dict[str, io.TextIOWrapper] = {}
        self._given_up: list[io.TextIOWrapper | None] = []
        self._own_streams()
        if self._executor.shells.made is None:
            builtins.display = self._display  # type: ignore[attr-defined]
        builtins.input = self._input
        getpass.getpass = _no_password
        signal.signal(signal.SIGXCPU, self._on_cpu)
        signal.signal(signal.SIGINT, self._on_interrupt)
        event_loop.withdraw_in_children()
        self._copies = ForkInterrupts(channel.count_interrupts)

    def go_on(self, enter: Enter) -> None:
        self._enter(enter)
        self._listen()
        self.serve()

    def serve(self) -> NoReturn:
        while True:
            self._channel.send(Ready(version=messages.VERSION, python=platform.python_version()))
            self._tell(self._known.all_news())
            self._listen()

    def _tell(self, news: Native | None) -> None:
        if news is not None:
            self._channel.send(news)

    def _listen(self) -> None:
        """Until the parent hangs up, which ends the process, or this is a woken copy, which begins anew."""
        self._decoder = frames.Decoder(messages.REQUESTS)
        while data := self._receive():
            for request in self._decoder.feed(data):
                if isinstance(request, Checkpoint):
                    if self._checkpoint(request.name):
                        return
                else:
                    self.answer(request)
        os._exit(0)

    def _receive(self) -> bytes:
        if self._inside:
            return self._channel.receive(1 << 16)
        data, self._trees = self._channel.receive_first(1 << 16)
        return data

    def _checkpoint(self, name: str) -> bool:
        """True in a copy, once it is woken: it has the original's place, and another parent's ear."""
        begun = time.thread_time()  # work, not waiting: a busy machine does not make it dear
        why, loop, found = "", after_fork.current_loop(), fork_report.Census()
        ours = self._channel.descriptors + self._descriptors.kept + self._known.relay.descriptors
        self._taken += 1
        pages = copy_on_write.written_pages() if self._taken > _FEW else []
        try:
            found = self._checkpoints.census(ours)
            descriptors = self._checkpoints.take(name, found, self._leave)
        except Exception as error:  # no process to be had, or a cell that patched what this needs
            descriptors, why = None, f"taking one failed ({type(error).__name__}: {error})"
        if descriptors is None:
            self._channel.send(
                Checkpointed(
                    name=name,
                    why_not=why,
                    quality=found.quality,
                    lost=found.lost,
                    faults=resource.getrusage(resource.RUSAGE_SELF).ru_minflt,
                    seconds=time.thread_time() - begun,
                )
            )
            copy_on_write.copy_pages(pages)
            return False
        self._known.relay.forget_loops()
        self._channel.connect(descriptors[: channels.RELAY])
        self._descriptors = channels.Descriptors()
        after_fork.after_waking(loop)
        self._known.relay.connect(descriptors[channels.RELAY])
        return True

    def _leave(self) -> None:
        """In a copy: the channel is the original's."""
        self._channel.leave()
        self._known.relay.leave()
        for each in self._descriptors.kept:
            os.close(each)

    def answer(self, request: Request) -> None:
        match request:
            case Enter():
                self._enter(request)
            case Run():
                self._run(request)
            case Offer(catalog=catalog, hidden=hidden):
                hidden_variables.forget(hidden)
                self._known.apply(catalog)
            case Inspect():
                variables, functions = namespace.describe(self._executor.namespace)
                self._channel.send(Inspected(variables=variables, functions=functions))
            case Read(name=name):
                self._channel.send(self._read(name))
            case Page():
                self._channel.send(tables.paged(request))
            case Load():
                self._channel.send(self._load())

    def _enter(self, request: Enter) -> None:
        """Where this kernel works and what it may use; the first request, once."""
        why = ""
        try:
            if request.sandbox:
                apply.apply(request.sandbox, self._trees)
            os.chdir(request.workspace)
            if request.venv:
                venv_exec.begin(request, self._all_descriptors(), *self._checkpoints.way)
        except (apply.LayerFailed, venv_exec.NotMade, OSError) as error:
            why = str(error)
        self._inside = not why
        if not why:
            self._settle(request)
        self._channel.send(Entered(why_not=why))

    def _all_descriptors(self) -> list[int]:
        """As a live process begins with them."""
        sock, stdout, stderr, lock = self._channel.descriptors
        written = [os.dup(1), stdout, os.dup(2), stderr]
        return [sock, *written, lock, *self._known.relay.descriptors, *self._recipe]

    def _settle(self, request: Enter) -> None:
        os.environ.update(request.environ)
        if request.sandbox or request.proxied:  # `python` on the path may lie where nothing is seen from here
            os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
        if request.proxied:
            self._channel.audited.update(self._attempts.watched)
        if request.memory:
            resource.setrlimit(resource.RLIMIT_DATA, (request.memory, request.memory))
            memory_reserve.limited = True
        self._cpu_seconds = request.cpu
        self._executor.ipython = request.ipython
        self._executor.history.folders[:] = [pathlib.Path(request.workspace)]
        packages.keep_in(request.workspace)
        packages.grant(request.no_index)
        surroundings.enter()

    def _load(self) -> Loaded:
        descriptors, self._recipe = self._recipe, []
        for name in [name for name in self._executor.namespace if name not in writer.OURS and not is_ours(name)]:
            del self._executor.namespace[name]  # of a branch, which does not begin empty
        self._running = True  # what is loaded may be code, and that may be stopped
        try:
            found = reader.load(descriptors, self._executor.namespace)
        except BaseException as error:
            return Loaded(why_not=f"{type(error).__name__}: {error}"[:500])
        finally:
            self._running = False
        self._executor.history.adopt()
        self._tell(self._known.loaded())
        self._makers.makers = found.makers
        self._cells.update(found.cells)
        lost = [
            {"name": each.name, "what": each.what, "why": each.why, "run": found.makers.get(each.name, "")}
            for each in found.lost
        ]
        return Loaded(variables=found.variables, lost=lost, notes=found.notes, seconds=found.seconds)

    def _run(self, request: Run) -> None:
        self._own_streams()
        signal.signal(signal.SIGINT, self._on_interrupt)  # a cell before may have replaced it
        self._interrupts.came = None
        self._copies.begin_run()
        self._running = True
        self._attempts.forget()
        self._makers.before(self._executor.namespace)
        self._limit_cpu(self._cpu_seconds)
        try:
            finished = self._executor.execute(request)
            self._interrupts.let_go()  # one that waits for a loop that has ended
        except KeyboardInterrupt as late:  # it came while the outcome was being reported
            if self._channel.left:  # or a child of the cell's was ending
                os._exit(1)
            self._channel.send(raised(late))
            finished = messages.Finished(run=request.run, outcome="interrupted")
        finally:
            self._running = False
            self._limit_cpu(0)
            self._makers.after(self._executor.namespace, request.run, self._executor.bound)
            self._cells[request.run] = request.name.partition(",")[0]
        self._tell(self._known.news())
        self._channel.send(finished)

    def _limit_cpu(self, seconds: float) -> None:
        """So much processor time from now on; 0 is no limit."""
        if not self._cpu_seconds:
            return
        soft = math.ceil(time.process_time() + seconds) if seconds else resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))

    def _on_cpu(self, number: int, frame: types.FrameType | None) -> None:
        if self._running:
            limit = (
                f"{self._cpu_seconds:g} s of processor time, its limit" if self._cpu_seconds else "RLIMIT_CPU allows"
            )
            self._interrupts.come(CpuTimeExceeded(f"The run used more than {limit}."))

    def _input(self, prompt: object = "", /) -> str:
        """A line from a person, where the client can ask one."""
        prompt = str(prompt)
        if not self._running or threading.current_thread() is not threading.main_thread() or self._channel.left:
            raise InputNotAvailable("input() is for the cell itself, not for its threads and processes.")
        self._questions += 1
        self._channel.send(Asked(question=self._questions, prompt=prompt))
        while True:
            data = self._channel.receive(1 << 16)
            if not data:
                os._exit(0)
            for message in self._decoder.feed(data):
                if isinstance(message, Answer) and message.question == self._questions:
                    if message.line:
                        return message.line[0]
                    raise InputNotAvailable(f"input({prompt!r}): {message.why}")

    def _on_interrupt(self, number: int, frame: types.FrameType | None) -> None:
        if self._copies.receive() and self._running:
            self._interrupts.come(KeyboardInterrupt(), frame)

    def _display(self, *values: Any, **given: Any) -> Any:
        """IPython's display(), as builtins have it until IPython is loaded."""
        self._executor.shells.get()
        from IPython.display import display

        return display(*values, **given)

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


def _after_standard() -> int:
    """The working folder comes after the standard library, as in a notebook: its random.py is not Python's."""
    standard = os.path.dirname(os.__file__)
    return max((at for at, path in enumerate(sys.path) if _is_standard(path, standard)), default=-1) + 1


def _is_standard(path: str, standard: str) -> bool:
    """Whether a folder on Python's path is of the standard library: below its folder, or the archive beside it."""
    if path.endswith(".zip"):
        return os.path.dirname(path) == os.path.dirname(standard)
    return os.path.join(path, "").startswith(os.path.join(standard, "")) and "-packages" not in path[len(standard) :]


def _no_password(prompt: str = "Password: ", stream: Any = None) -> str:
    raise InputNotAvailable("A password cannot be asked for here. Put it into the server's environment or a file.")


def _reseed() -> None:
    """Two kernels of one zygote must not draw the same random numbers."""
    import random

    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def quiet_stdin() -> None:
    """Nothing to read on fd 0: a program that waits for input sees its end at once."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
