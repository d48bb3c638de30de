"""Every kind of server ends when it is told to, at whatever moment, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import httpx2
import pytest

from tests.support.jupyter.servers import JupyterServer
from tests.support.processes import alive, processes_of
from tests.support.servers import server_environment
from tests.support.waiting import DEADLINE, wait_until

SERVERS = 200
SAMPLE = 24
SERVER = [sys.executable, "-m", "quire"]
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
CODE = {
    "creating a spare": "1",
    "snapshotting": "import os\nx = [os.urandom(1000) for _ in range(20_000)]",
    "hibernating": "x = 1",
    "running": "while True: pass",
    "idle": "x = 1",
}
SECONDS_INTO = {  # how long after the code ended, or in a run after it began, the end comes at most
    "creating a spare": 0.6,
    "snapshotting": 1.0,
    "hibernating": 1.2,
    "running": 2.0,
    "idle": 3.0,
}


@dataclass
class Server:
    """A server process, with its log and a folder for temporary files of its own."""

    process: subprocess.Popen[bytes]
    log_file: Path
    tmp: Path
    data_dir: Path
    stdin: BinaryIO | None = None
    stdout: BinaryIO | None = None
    children: set[int] = field(default_factory=set)

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def end(self, how: str) -> int:
        """Tell it to end; its exit code."""
        self.children = set(processes_of(self.process.pid))
        if how == "stdin closes" and self.stdin is not None:
            self.stdin.close()
        else:
            self.process.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGTERM)
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"It did not end within {DEADLINE:g} s. Its log:\n{self.log()}")

    def assert_nothing_left(self) -> None:
        log = self.log()
        assert "was cut short" not in log, log
        assert not re.search(r'Traceback .*\n +File "/', log), log  # a cell's own names no file
        pid = self.process.pid
        wait_until(lambda: not [child for child in self.children if alive(child)], "its processes are gone")
        wait_until(lambda: not workers_of(pid), "its workers are gone")
        assert not list(Path("/sys/fs/cgroup").rglob(f"quire_{pid}_*"))
        assert os.listdir(self.tmp) == []
        assert not [path for path in self.data_dir.rglob("*") if path.is_socket()]


def workers_of(server: int) -> list[int]:
    """Processes of kernels, by their command line, which names the server's process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if str(server).encode() in words and b"worker/__main__.py" in b" ".join(words) and alive(int(entry.name)):
                found.append(int(entry.name))
    return found


@contextlib.contextmanager
def started(folder: Path, command: list[str], *, terminal: bool = False, **settings: Any) -> Iterator[Server]:
    tmp = folder / "tmp"
    tmp.mkdir()
    data_dir, log_file = folder / "data", folder / "log"
    env = {**server_environment(data_dir, **settings), "TMPDIR": str(tmp)}
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(log_file.open("wb"))
        if terminal:
            ours, theirs = pty.openpty()
            stack.callback(os.close, ours)
            process = subprocess.Popen(
                command, stdin=theirs, stdout=theirs, stderr=log, env=env, preexec_fn=_take_terminal
            )
            os.close(theirs)
            server = Server(process, log_file, tmp, data_dir, stdin=os.fdopen(os.dup(ours), "wb", buffering=0))
        else:
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, env=env, start_new_session=True)
            server = Server(process, log_file, tmp, data_dir, stdin=process.stdin, stdout=process.stdout)
        try:
            yield server
        finally:
            process.kill()
            process.wait()
            for stream in (server.stdin, server.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()


def _take_terminal() -> None:
    """In the child: a session of its own, whose terminal its stdin is."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def ask_stdio(server: Server, number: int, method: str, **params: Any) -> None:
    assert server.stdin is not None
    server.stdin.write(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"
    )
    server.stdin.flush()


def answer_stdio(server: Server, number: int) -> Any:
    assert server.stdout is not None
    for line in server.stdout:
        message = json.loads(line)
        if message.get("id") == number:
            return message
    return pytest.fail(f"it ended without an answer:\n{server.log()}")


def begin_stdio(server: Server, state: str) -> None:
    ask_stdio(server, 1, "initialize", **HELLO)
    answer_stdio(server, 1)
    assert server.stdin is not None
    server.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    ask_stdio(server, 2, "tools/call", name="execute", arguments={"code": CODE[state]})
    if state != "running":
        answer_stdio(server, 2)


def begin_http(server: Server, state: str) -> None:
    """One request of the 2025 era; a run goes on when the connection is closed."""
    wait_until(lambda: "Quire listens at" in server.log(), "it listens")
    found = re.search(r"Quire listens at (\S+)", server.log())
    assert found is not None
    headers = {"accept": "application/json, text/event-stream"}
    with httpx2.Client(timeout=DEADLINE, headers=headers) as client:

        def post(number: int, method: str, **params: Any) -> httpx2.Response:
            said = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            return client.post(found[1], json=said)

        session = post(1, "initialize", **HELLO).headers["mcp-session-id"]
        client.headers["mcp-session-id"] = session
        client.post(found[1], json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        if state == "running":
            with contextlib.suppress(httpx2.TimeoutException):
                client.timeout = httpx2.Timeout(1.0)
                post(2, "tools/call", name="execute", arguments={"code": CODE[state]})
        else:
            post(2, "tools/call", name="execute", arguments={"code": CODE[state]})


@pytest.fixture(scope="module")
def busy() -> Iterator[None]:
    """A processor that is busy all the time."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield
        process.kill()


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=pytest.mark.soak(sample=number < SAMPLE)) for number in range(SERVERS)]
)
def test_server_ends_at_any_moment(number: int, tmp_path: Path, busy: None) -> None:
    """Servers of every kind, ended at a random moment of what they do, beside other work."""
    chance = random.Random(number)
    kind = chance.choice(["stdio"] * 5 + ["http"] * 3 + ["terminal", "exec", "run"])
    state = chance.choice(["starting", *CODE]) if kind in ("stdio", "http") else "starting"
    how = chance.choice(["SIGTERM", "Ctrl-C"] + ["stdin closes"] * (kind == "stdio"))
    moment = chance.uniform(0, SECONDS_INTO.get(state, 4.0))
    settings: dict[str, Any] = {"preload": chance.choice(["", "numpy"])}
    if state == "hibernating":
        settings["hibernate_after"] = 0.2
    script = tmp_path / "script.py"
    script.write_text("import time\ntime.sleep(1000)\n")
    command = {
        "http": [*SERVER, "serve", "--server-transport", "http", "--server-port", "0"],
        "exec": [*SERVER, "exec", "import time; time.sleep(1000)"],
        "run": [*SERVER, "run", str(script)],
    }.get(kind, SERVER)
    with started(tmp_path, command, terminal=kind == "terminal", **settings) as server:
        if state != "starting":
            (begin_http if kind == "http" else begin_stdio)(server, state)
        time.sleep(moment)  # the moment is what is tried here; nothing is waited for
        server.end(how)
        server.assert_nothing_left()


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=pytest.mark.soak(sample=number < 1)) for number in range(10)]
)
def test_jupyter_server_with_the_extension_ends_at_any_moment(number: int, tmp_path: Path, busy: None) -> None:
    jupyter = JupyterServer(
        folder=tmp_path, quire=True, collaboration=False, environment=server_environment(tmp_path / "quire")
    )
    jupyter.start()
    assert jupyter.process is not None
    try:
        time.sleep(random.Random(number).uniform(0, 3))  # the moment is what is tried here; nothing is waited for
        children = processes_of(jupyter.pid)
        jupyter.process.terminate()
        jupyter.process.wait(DEADLINE)
        wait_until(lambda: not [child for child in children if alive(child)], "its processes are gone")
        assert "Traceback" not in jupyter.log(), jupyter.log()
    finally:
        jupyter.kill()


@pytest.mark.parametrize("how", ["SIGTERM", "Ctrl-C"])
def test_stdio_server_on_a_terminal_ends_before_a_client_came(how: str, tmp_path: Path) -> None:
    with started(tmp_path, SERVER, terminal=True) as server:
        wait_until(lambda: "Ctrl-C ends it." in server.log(), "it says what it waits for")
        if how == "Ctrl-C":
            assert server.stdin is not None
            server.children = set(processes_of(server.process.pid))
            server.stdin.write(b"\x03")  # as a person types it
            assert server.process.wait(DEADLINE) == 128 + signal.SIGINT
        else:
            assert server.end(how) == 128 + signal.SIGTERM
        server.assert_nothing_left()
    assert "Quire waits for an MCP client on standard input" in server.log() and "quire install" in server.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stdio_server_with_an_open_stdin_ends_before_a_client_came(number: int, tmp_path: Path) -> None:
    with started(tmp_path, SERVER, log_level="info") as server:
        wait_until(lambda: workers_of(server.process.pid), "it has started a kernel's process")
        assert server.end("Ctrl-C" if number == signal.SIGINT else "SIGTERM") == 128 + number
        server.assert_nothing_left()
    assert "Quire waits" not in server.log()


CTRL_C_WHILE_LOADING = """
import signal, sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == "quire.frontends.mcp.stdio":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
sys.argv = ["quire"]
from quire.__main__ import main
main()
"""


def test_ctrl_c_while_modules_load_ends_the_process_without_a_traceback(tmp_path: Path) -> None:
    """A KeyboardInterrupt inside an import may become another exception, such as pydantic's RuntimeError."""
    command = [sys.executable, "-c", CTRL_C_WHILE_LOADING]
    done = subprocess.run(command, env=server_environment(tmp_path / "data"), capture_output=True, timeout=DEADLINE)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_stdio_server_reads_a_file_to_its_end(tmp_path: Path) -> None:
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}},
    ]
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    asked.write_text("".join(json.dumps(request) + "\n" for request in requests))
    with asked.open() as stdin, answered.open("w") as stdout:
        env = server_environment(tmp_path / "data")
        done = subprocess.run(SERVER, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=env, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    assert 1 in [json.loads(line).get("id") for line in answered.read_text().splitlines()]
