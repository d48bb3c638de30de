"""Shell commands in a terminal of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from quire.worker.shell import scripts
from quire.worker.shell.commands import getoutput, system
from tests.support.processes import alive
from tests.support.waiting import wait_until

Captured = pytest.CaptureFixture[str]


def test_terminal_output_of_both_streams_is_in_order(capsys: Captured) -> None:
    assert system("test -t 1 && echo out; echo err >&2; printf 'no end'") == 0
    assert capsys.readouterr().out == "out\nerr\nno end"


def test_terminal_is_80_by_24_without_a_pager(capsys: Captured) -> None:
    system("stty size <&1; echo $PAGER $GIT_PAGER $TERM")
    assert capsys.readouterr().out == "24 80\ncat cat xterm-color\n"


def test_carriage_returns_are_kept_except_at_line_ends(capsys: Captured) -> None:
    system(r"printf '1\r2\r3\nend\n'")
    assert capsys.readouterr().out == "1\r2\r3\nend\n"


@pytest.mark.parametrize(
    ("command", "code"), [("true", 0), ("exit 3", 3), ("kill -9 $$", -9), ("no-such-command-x", 127)]
)
def test_exit_code_is_returned(command: str, code: int, capsys: Captured) -> None:
    assert system(command) == code


def test_split_characters_are_joined(capsys: Captured) -> None:
    system(r"printf '\303'; sleep 0.2; printf '\274\n'")
    assert capsys.readouterr().out == "ü\n"


def test_background_child_is_not_awaited(capsys: Captured) -> None:
    assert system("sleep 600 & echo $!") == 0
    (other,) = getoutput("sleep 600 & echo $!")
    children = int(capsys.readouterr().out), int(other)
    assert all(map(alive, children))
    for child in children:
        os.kill(child, signal.SIGKILL)


def test_stdin_is_empty(capsys: Captured) -> None:
    assert system("cat; echo over") == 0
    assert capsys.readouterr().out == "over\n"


@pytest.mark.parametrize("command", ["sleep 600", "trap '' INT; echo $$ > pid; sleep 600; sleep 600"])
def test_interrupt_ends_the_command_and_is_raised(
    command: str, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pid = tmp_path / "pid"

    def interrupt() -> None:
        wait_until(lambda: pid.exists() and pid.read_text(), "the command runs")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        system(command if "pid" in command else f"echo $$ > pid; {command}")
    thread.join()
    wait_until(lambda: not alive(int(pid.read_text())), "the command ended")


class InterruptedPopen(subprocess.Popen[bytes]):
    """A process whose start is interrupted after it began to run."""

    pids: ClassVar[list[int]] = []

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.pids.append(self.pid)
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("start", [lambda: system("sleep 600"), lambda: scripts.run("sh", "sleep 600", {})])
def test_interrupt_while_a_program_starts_ends_it(
    start: Callable[[], object], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", InterruptedPopen)
    with pytest.raises(KeyboardInterrupt):
        start()
    wait_until(lambda: not alive(InterruptedPopen.pids[-1]), "the program ended")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_descriptors_are_closed(capsys: Captured) -> None:
    system("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        system("echo x")
        getoutput("echo x")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "command", ["pip --version", "pip3 --version", "python -m pip --version", "pip --version | cat"]
)
def test_pip_is_the_kernels(command: str, capsys: Captured) -> None:
    assert system(command) == 0
    assert sys.prefix in capsys.readouterr().out


def test_captured_output_of_both_streams() -> None:
    lines = getoutput("echo a b; echo c d >&2; test -t 1 || echo no terminal")
    assert lines == ["a b", "c d", "no terminal"]


def test_commands_work_without_terminals(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "def none(): raise OSError('no terminals')\n"
        "os.openpty = none\n"
        "from quire.worker.shell.commands import system\n"
        "sys.exit(system('echo piped; exit 4'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (4, "piped\n")
