"""The worker's main loop: read a request, run it, send its events, until the server disconnects."""

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
from quire.worker.capabilities.kernel_capabilities import KernelCapabilities
from quire.worker.environment import blocked_hosts, hidden_variables, packages
from quire.worker.execution import event_loop, memory_reserve, namespace
from quire.worker.execution.errors import CpuTimeExceeded, InputNotAvailable, raised_event
from quire.worker.execution.executor import Executor
from quire.worker.execution.history import is_kernel_name
from quire.worker.execution.interrupts import Interrupts
from quire.worker.execution.tracking import BindingTracker
from quire.worker.output import tables
from quire.worker.processes import after_fork, copy_on_write, fork_report, process_tree, venv_exec
from quire.worker.processes.checkpoints import WORKER_OOM_SCORE, Checkpoints
from quire.worker.processes.fork_interrupts import ForkInterrupts
from quire.worker.processes.supervisor import WorkerStart
from quire.worker.sandbox import apply
from quire.worker.snapshot import process_state, reader, writer
from quire.worker.snapshot.pages import PageWatch

_UNCOPIED_CHECKPOINTS = 2  # the first ones: a new notebook may stay idle, and its pages shared


def run_worker(start: WorkerStart, enter: Enter | None = None) -> None:
    """Run as a kernel's live process until the server closes the socket. `enter` is given to a process that replaced
    another one after that request (see venv_exec.py)."""
    close_stdin()
    process_tree.set_oom_score("self", WORKER_OOM_SCORE)
    sys.path.insert(_after_standard_library(), "")
    sys.argv = [""]
    _reseed_random()
    interrupts = Interrupts()
    channel = channels.Channel(interrupts)
    channel.connect(start.descriptors[: channels.RELAY_INDEX])
    channels.line_buffer_c()
    worker = _Worker(channel, interrupts, start)
    if enter is None:
        worker.serve()
    worker.serve_after_enter(enter)


class _Worker:
    def __init__(self, channel: channels.Channel, interrupts: Interrupts, start: WorkerStart) -> None:
        self._channel = channel
        self._interrupts = interrupts
        self._executor = Executor(channel.send)
        self._known = KernelCapabilities(interrupts, self._executor.namespace)
        self._known.relay.connect(start.descriptors[channels.RELAY_INDEX])
        self._bindings = BindingTracker(ignored=self._executor.history.numbered)
        self._cells: dict[str, str] = {}  # labels of cells, by run
        subject = writer.Subject(self._executor.namespace, self._bindings, self._cells, PageWatch())
        self._checkpoints = Checkpoints(start.announce_socket, start.supervisor_pid, subject)
        self._snapshot_descriptors = start.descriptors[channels.DESCRIPTOR_COUNT :]  # of a snapshot to load
        self._running = False
        self._checkpoint_count = 0
        self._has_entered = False  # the workspace
        self._mounts: list[int] = []  # to attach when it enters
        self._blocked_host_notices = blocked_hosts.BlockedHostNotices()
        self._question_count = 0
        self._cpu_seconds = 0.0
        self._decoder = frames.Decoder(messages.REQUESTS)
        self._descriptors = channels.StandardDescriptors()
        self._streams: dict[str, io.TextIOWrapper] = {}
        self._replaced_streams: list[io.TextIOWrapper | None] = []
        self._restore_streams()
        if self._executor.ipython_loader.shell is None:
            builtins.display = self._display  # type: ignore[attr-defined]
        builtins.input = self._input
        getpass.getpass = _refuse_password
        signal.signal(signal.SIGXCPU, self._on_cpu_limit)
        signal.signal(signal.SIGINT, self._on_interrupt)
        event_loop.withdraw_in_children()
        self._fork_interrupts = ForkInterrupts(channel.count_interrupts)

    def serve_after_enter(self, enter: Enter) -> None:
        self._enter(enter)
        self._serve_requests()
        self.serve()

    def serve(self) -> NoReturn:
        while True:
            self._channel.send(Ready(version=messages.VERSION, python=platform.python_version()))
            self._send_native(self._known.all_news())
            self._serve_requests()

    def _send_native(self, news: Native | None) -> None:
        if news is not None:
            self._channel.send(news)

    def _serve_requests(self) -> None:
        """Serve until the server disconnects, which ends the process, or until this is a woken checkpoint."""
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
        if self._has_entered:
            return self._channel.receive(1 << 16)
        data, self._mounts = self._channel.receive_with_descriptors(1 << 16)
        return data

    def _checkpoint(self, name: str) -> bool:
        """Take a checkpoint. True in the copy once it is woken; it then takes the original's place with a new
        connection."""
        started = time.thread_time()  # processor time, since a busy machine does not make a checkpoint more expensive
        why, loop, report = "", after_fork.current_loop(), fork_report.ForkReport()
        own = self._channel.descriptors + self._descriptors.copies + self._known.relay.descriptors
        self._checkpoint_count += 1
        pages = copy_on_write.written_pages() if self._checkpoint_count > _UNCOPIED_CHECKPOINTS else []
        try:
            report = self._checkpoints.report_fork(own)
            descriptors = self._checkpoints.take(name, report, self._detach)
        except Exception as error:  # no process could be forked, or a cell patched a function used here
            descriptors, why = None, f"taking one failed ({type(error).__name__}: {error})"
        if descriptors is None:
            self._channel.send(
                Checkpointed(
                    name=name,
                    why_not=why,
                    quality=report.quality,
                    lost=report.lost,
                    faults=resource.getrusage(resource.RUSAGE_SELF).ru_minflt,
                    seconds=time.thread_time() - started,
                )
            )
            copy_on_write.copy_pages(pages)
            return False
        self._known.relay.forget_loops()
        self._channel.connect(descriptors[: channels.RELAY_INDEX])
        self._descriptors = channels.StandardDescriptors()
        after_fork.restore_after_fork(loop)
        self._known.relay.connect(descriptors[channels.RELAY_INDEX])
        return True

    def _detach(self) -> None:
        """In a checkpoint: close the original's connection."""
        self._channel.detach()
        self._known.relay.leave()
        for descriptor in self._descriptors.copies:
            os.close(descriptor)

    def answer(self, request: Request) -> None:
        match request:
            case Enter():
                self._enter(request)
            case Run():
                self._run(request)
            case Offer(catalog=catalog, hidden=hidden):
                hidden_variables.remove(hidden)
                self._known.apply(catalog)
            case Inspect():
                variables, functions = namespace.describe(self._executor.namespace)
                self._channel.send(Inspected(variables=variables, functions=functions))
            case Read(name=name):
                self._channel.send(self._read(name))
            case Page():
                self._channel.send(tables.read_page(request))
            case Load():
                self._channel.send(self._load())

    def _enter(self, request: Enter) -> None:
        """Enter the workspace and apply the sandbox and limits. The first request, sent once."""
        why = ""
        try:
            if request.sandbox:
                apply.apply(request.sandbox, self._mounts)
            os.chdir(request.workspace)
            if request.venv:
                venv_exec.exec_venv_python(request, self._all_descriptors(), *self._checkpoints.supervisor_link)
        except (apply.LayerFailed, venv_exec.VenvError, OSError) as error:
            why = str(error)
        self._has_entered = not why
        if not why:
            self._configure(request)
        self._channel.send(Entered(why_not=why))

    def _all_descriptors(self) -> list[int]:
        """The descriptors as a live process gets them at its start."""
        sock, stdout, stderr, lock = self._channel.descriptors
        written = [os.dup(1), stdout, os.dup(2), stderr]
        return [sock, *written, lock, *self._known.relay.descriptors, *self._snapshot_descriptors]

    def _configure(self, request: Enter) -> None:
        os.environ.update(request.environ)
        if request.sandbox or request.proxied:  # `python` on PATH may not be visible in the sandbox
            os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
        if request.proxied:
            self._channel.audited.update(self._blocked_host_notices.audit_hooks)
        if request.memory:
            resource.setrlimit(resource.RLIMIT_DATA, (request.memory, request.memory))
            memory_reserve.limited = True
        self._cpu_seconds = request.cpu
        self._executor.runs_in_ipython = request.ipython
        self._executor.history.folders[:] = [pathlib.Path(request.workspace)]
        packages.use_workspace(request.workspace)
        packages.set_unreachable_hosts(request.no_index)
        process_state.remember_entered_state()

    def _load(self) -> Loaded:
        descriptors, self._snapshot_descriptors = self._snapshot_descriptors, []
        for name in [
            name for name in self._executor.namespace if name not in writer.MODULE_NAMES and not is_kernel_name(name)
        ]:
            del self._executor.namespace[name]  # a branch has variables
        self._running = True  # loading may run code, which can be interrupted
        try:
            loaded = reader.load(descriptors, self._executor.namespace)
        except BaseException as error:
            return Loaded(why_not=f"{type(error).__name__}: {error}"[:500])
        finally:
            self._running = False
        self._executor.history.load_from_namespace()
        self._send_native(self._known.loaded())
        self._bindings.makers = loaded.makers
        self._cells.update(loaded.cells)
        lost = [
            {"name": loss.name, "what": loss.what, "why": loss.why, "run": loaded.makers.get(loss.name, "")}
            for loss in loaded.lost
        ]
        return Loaded(variables=loaded.variables, lost=lost, notes=loaded.notes, seconds=loaded.seconds)

    def _run(self, request: Run) -> None:
        self._restore_streams()
        signal.signal(signal.SIGINT, self._on_interrupt)  # an earlier cell may have replaced it
        self._interrupts.pending = None
        self._fork_interrupts.begin_run()
        self._running = True
        self._blocked_host_notices.begin_run()
        self._bindings.before_run(self._executor.namespace)
        self._limit_cpu(self._cpu_seconds)
        try:
            finished = self._executor.execute(request)
            self._interrupts.release()  # an interrupt that waits for an event loop that has ended
        except KeyboardInterrupt as interrupt:  # after the cell, while its result was sent
            if self._channel.is_detached:  # or at the end of a child that the cell forked
                os._exit(1)
            self._channel.send(raised_event(interrupt))
            finished = messages.Finished(run=request.run, outcome="interrupted")
        finally:
            self._running = False
            self._limit_cpu(0)
            self._bindings.after_run(self._executor.namespace, request.run, self._executor.bound_names)
            self._cells[request.run] = request.name.partition(",")[0]
        self._send_native(self._known.news())
        self._channel.send(finished)

    def _limit_cpu(self, seconds: float) -> None:
        """Allow this much processor time from now on; 0 is no limit."""
        if not self._cpu_seconds:
            return
        soft = math.ceil(time.process_time() + seconds) if seconds else resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))

    def _on_cpu_limit(self, number: int, frame: types.FrameType | None) -> None:
        if self._running:
            limit = (
                f"{self._cpu_seconds:g} s of processor time, its limit" if self._cpu_seconds else "RLIMIT_CPU allows"
            )
            self._interrupts.deliver(CpuTimeExceeded(f"The run used more than {limit}."))

    def _input(self, prompt: object = "", /) -> str:
        """Ask the client's user for a line."""
        prompt = str(prompt)
        if not self._running or threading.current_thread() is not threading.main_thread() or self._channel.is_detached:
            raise InputNotAvailable("input() is for the cell itself, not for its threads and processes.")
        self._question_count += 1
        self._channel.send(Asked(question=self._question_count, prompt=prompt))
        while True:
            data = self._channel.receive(1 << 16)
            if not data:
                os._exit(0)
            for message in self._decoder.feed(data):
                if isinstance(message, Answer) and message.question == self._question_count:
                    if message.line:
                        return message.line[0]
                    raise InputNotAvailable(f"input({prompt!r}): {message.why}")

    def _on_interrupt(self, number: int, frame: types.FrameType | None) -> None:
        if self._fork_interrupts.receive() and self._running:
            self._interrupts.deliver(KeyboardInterrupt(), frame)

    def _display(self, *values: Any, **options: Any) -> Any:
        """IPython's display(), until IPython is loaded."""
        self._executor.ipython_loader.load()
        from IPython.display import display

        return display(*values, **options)

    def _read(self, name: str) -> Value:
        if name not in self._executor.namespace:
            return Value(value=[], what="")
        value = self._executor.namespace[name]
        return Value(value=namespace.as_json(value), what=namespace.type_of(value))

    def _restore_streams(self) -> None:
        """Restore stdout and stderr in case a cell closed, replaced or redirected them."""
        self._descriptors.restore()
        for name, fd in (("stdout", 1), ("stderr", 2)):
            if not channels.is_usable(self._streams.get(name)):
                # keep the old one: a thread inside print() holds no reference to its stream
                self._replaced_streams.append(self._streams.get(name))
                self._streams[name] = channels.open_stream(self._channel, name, fd)
            setattr(sys, name, self._streams[name])
            setattr(sys, f"__{name}__", self._streams[name])


def _after_standard_library() -> int:
    """The index for the working folder on sys.path: after the standard library, so that a random.py there does not hide
    Python's."""
    standard = os.path.dirname(os.__file__)
    return max((at for at, path in enumerate(sys.path) if _is_in_standard_library(path, standard)), default=-1) + 1


def _is_in_standard_library(path: str, standard: str) -> bool:
    """Whether a folder on sys.path is in the standard library or is its zip archive."""
    if path.endswith(".zip"):
        return os.path.dirname(path) == os.path.dirname(standard)
    return os.path.join(path, "").startswith(os.path.join(standard, "")) and "-packages" not in path[len(standard) :]


def _refuse_password(prompt: str = "Password: ", stream: Any = None) -> str:
    raise InputNotAvailable("A password cannot be asked for here. Put it into the server's environment or a file.")


def _reseed_random() -> None:
    """Kernels forked from one zygote must not draw the same random numbers."""
    import random

    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def close_stdin() -> None:
    """Connect descriptor 0 to /dev/null, so that a program that reads it gets the end of the file."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
