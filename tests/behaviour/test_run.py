"""`quire run`, as a person types it: outputs, files, parameters, failures, signals."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import pytest

from quire.core.model import LOCAL, NewCell, Notebook, NotebookId
from quire.core.runs.active_run import ActiveRun, StopReason
from quire.core.runs.transcript import Transcript
from quire.frontends.terminal.notebook_runner import Stopping
from tests.support import preloaded
from tests.support.disks import with_mount
from tests.support.processes import alive, processes_of
from tests.support.servers import server_environment
from tests.support.waiting import DEADLINE, wait_until

COMMAND = [sys.executable, "-m", "quire", "run"]
ENDLESS = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.01)"
DEAF = (
    "import time\nprint('begun', flush=True)\n"
    "while True:\n    try:\n        time.sleep(60)\n    except KeyboardInterrupt:\n        print('no', flush=True)"
)


def run(folder: Path, *arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The end of a run."""
    return subprocess.run(
        preloaded.quire("run", *map(str, arguments)),
        env=server_environment(folder / "data"),
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@contextmanager
def started(folder: Path, *arguments: object, **settings: Any) -> Iterator[subprocess.Popen[str]]:
    """A run under way, and nothing of it left when the block ends."""
    env = server_environment(folder / "data", **settings)
    command = [*COMMAND, *map(str, arguments)]
    pipe = subprocess.PIPE
    heeds = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)  # which nohup, around the tests, would have ignored
    with subprocess.Popen(
        command, env=env, cwd=folder, stdout=pipe, stderr=pipe, text=True, preexec_fn=heeds
    ) as process:
        children: set[int] = set()
        try:
            wait_until(lambda: len(processes_of(process.pid)) >= 3, "its kernel")
            children |= set(processes_of(process.pid))
            yield process
        finally:
            process.kill()
        process.wait(DEADLINE)
        wait_until(lambda: not any(map(alive, children)), "the end of its kernel")
    assert list(folder.glob(".quire-*")) == []


def notebook(path: Path, *cells: Any, **metadata: Any) -> Path:
    """A notebook of cells: source, or source with tags."""
    made = nbformat.v4.new_notebook(metadata=metadata)
    for source, *tags in ([cell] if isinstance(cell, str) else cell for cell in cells):
        made.cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": tags} if tags else {}))
    nbformat.write(made, path)
    return path


def opened(path: Path | str) -> Any:
    """The code cells of a document that is valid."""
    document = nbformat.reads(path.read_text("utf-8") if isinstance(path, Path) else path, as_version=4)
    nbformat.validate(document)
    return [cell for cell in document.cells if cell.cell_type == "code"]


def text_of(cell: Any) -> str:
    return "".join(
        output.get("text") or output.get("data", {}).get("text/plain") or output.get("ename", "")
        for output in cell.outputs
    )


# Outputs and files


def test_without_an_output_file_outputs_are_printed_and_the_notebook_stays(tmp_path: Path) -> None:
    source = notebook(
        tmp_path / "n.ipynb",
        "import sys\nprint('out', end='')\nprint('err', file=sys.stderr)\n6 * 7",
        "import matplotlib.pyplot as plt\nplt.figure(figsize=(2, 1))\nplt.plot([1, 2])\nplt.show()",
        "sys.stdout.buffer.write(b'\\xff\\n');",
    )
    before = source.read_bytes()
    done = subprocess.run([*COMMAND, "n.ipynb"], cwd=tmp_path, capture_output=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rb"out\n42\n\[image png \d+x\d+\]\n\xff\n", done.stdout)
    assert done.stderr == b"err\n"
    assert source.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == ["n.ipynb"]


def test_the_file_holds_what_this_run_showed_and_when(tmp_path: Path) -> None:
    source = notebook(tmp_path / "n.ipynb", "x = 1", "print(x)\nx + 1", "  ", custom="kept")
    again = nbformat.read(source, 4)
    again.cells[0].outputs = [nbformat.v4.new_output("stream", text="of an earlier run")]
    again.cells[0].execution_count = 41
    nbformat.write(again, source)
    done = run(tmp_path, "n.ipynb", "-o", "out.ipynb")
    assert (done.returncode, done.stdout) == (0, "")
    assert nbformat.read(tmp_path / "out.ipynb", 4).metadata.custom == "kept"
    cells = opened(tmp_path / "out.ipynb")
    assert [cell.id for cell in cells] == [cell.id for cell in again.cells]
    assert [cell.execution_count for cell in cells] == [1, 2, None]
    assert [text_of(cell) for cell in cells] == ["", "1\n2", ""]
    times = cells[1].metadata["execution"]
    assert times["iopub.execute_input"] < times["shell.execute_reply"] and "execution" not in cells[2].metadata
    assert not (tmp_path / "data").exists()


def test_code_works_in_the_folder_of_the_file(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "beside.py").write_text("word = 'found'")
    notebook(there / "n.ipynb", "import os, beside\nprint(os.getcwd(), beside.word)")
    assert run(tmp_path, "there/n.ipynb").stdout == f"{there} found\n"


def test_a_document_goes_from_standard_input_to_standard_output(tmp_path: Path) -> None:
    source = notebook(tmp_path / "n.ipynb", "import os\nos.system('echo loud')\nprint(os.getcwd())").read_text()
    done = run(tmp_path, "-", "-o", "-", stdin=source)
    (cell,) = opened(done.stdout)
    assert done.returncode == 0 and text_of(cell) == f"loud\n{tmp_path}\n"


def test_scripts_are_cells_between_marks_both_ways(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("# %% [markdown]\n# Words\n\n# %%\nx = 1\n\n# %%\nprint(x)\n")
    assert run(tmp_path, "s.py").stdout == "1\n"
    run(tmp_path, "s.py", "-o", "s.ipynb")
    assert [(cell.source, text_of(cell)) for cell in opened(tmp_path / "s.ipynb")] == [
        ("x = 1", ""),
        ("print(x)", "1\n"),
    ]
    assert run(tmp_path, "s.ipynb", "-o", "back.py").returncode == 0
    assert (tmp_path / "back.py").read_text().endswith(script.read_text())
    plain = run(tmp_path, "-", "-o", "-", stdin="x = 2\n\nprint(x)\n")
    assert [text_of(cell) for cell in opened(plain.stdout)] == ["2\n"]


def test_a_notebook_may_be_written_over_itself_and_a_link_stays_a_link(tmp_path: Path) -> None:
    source = notebook(tmp_path / "n.ipynb", "1 + 1")
    source.chmod(0o640)
    (tmp_path / "link.ipynb").symlink_to("n.ipynb")
    assert run(tmp_path, "n.ipynb", "-o", "link.ipynb").returncode == 0
    assert text_of(opened(source)[0]) == "2" and source.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "link.ipynb").is_symlink()


def test_what_is_not_a_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    notebook(tmp_path / "n.ipynb", "1")
    assert run(tmp_path, "n.ipynb", "-o", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()


def test_a_run_imports_no_more_of_quire_than_it_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", *COMMAND[1:], "-", "-o", "-"]
    done = subprocess.run(command, input="1", capture_output=True, text=True, cwd=tmp_path, timeout=DEADLINE)
    loaded = {line.rsplit("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "quire.compose" in loaded
    assert loaded & {"fastmcp", "mcp", "rich", "nbformat", "jsonschema"} == set()


# Parameters


@pytest.mark.parametrize(
    ("cells", "shown", "said"),
    [
        ([["n = 1\nword = 'a'", "parameters"], "print(n, word)"], "2 it's\n", ""),
        ([["n = 1", "parameters"], "print(n, word)"], "2 it's\n", "does not set 'word'"),
        (["print(n, word)"], "2 it's\n", "No cell is tagged 'parameters'"),
        ([["n = 1; word = ''", "parameters"], ["n = 7", "injected-parameters"], "print(n, word)"], "2 it's\n", ""),
    ],
)
def test_parameters_take_the_place_of_defaults(cells: list[Any], shown: str, said: str, tmp_path: Path) -> None:
    notebook(tmp_path / "n.ipynb", *cells)
    done = run(tmp_path, "n.ipynb", "-p", "n=2", "-p", "word=it's")
    assert (done.returncode, done.stdout) == (0, shown)
    assert said in done.stderr if said else not done.stderr
    run(tmp_path, "n.ipynb", "-o", "out.ipynb", "-p", "n=2", "-p", "word=it's")
    (injected,) = [
        cell for cell in opened(tmp_path / "out.ipynb") if "injected-parameters" in cell.metadata.get("tags", [])
    ]
    assert injected.source == '# Parameters\nn = 2\nword = "it\'s"'


# Failures and exit codes


def test_the_first_failure_ends_it_and_the_file_has_everything_so_far(tmp_path: Path) -> None:
    notebook(tmp_path / "n.ipynb", "print('one')", "print('two')\n1/0", "print('three')")
    done = run(tmp_path, "n.ipynb", "-o", "out.ipynb")
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
    assert "cell 2 of 3 failed (ERROR). 1 not run. What ran is in out.ipynb." in done.stderr
    cells = opened(tmp_path / "out.ipynb")
    assert [text_of(cell) for cell in cells] == ["one\n", "two\nZeroDivisionError", ""]
    assert cells[2].execution_count is None
    printed = run(tmp_path, "n.ipynb")
    assert (printed.returncode, printed.stdout) == (1, "one\ntwo\n") and printed.stderr.count("ZeroDivisionError") == 1


def test_with_errors_allowed_it_goes_on_and_still_says_that_one_failed(tmp_path: Path) -> None:
    notebook(tmp_path / "n.ipynb", "1/0", "print('on')", "nothing")
    done = run(tmp_path, "n.ipynb", "-o", "out.ipynb", "--allow-errors")
    assert done.returncode == 1 and "2 of 3 cells failed: 1 (ERROR), 3 (ERROR)." in done.stderr
    assert [text_of(cell) for cell in opened(tmp_path / "out.ipynb")] == ["ZeroDivisionError", "on\n", "NameError"]


def test_tags_say_which_cells_may_fail_and_which_are_not_run(tmp_path: Path) -> None:
    notebook(tmp_path / "n.ipynb", ["1/0", "raises-exception"], ["print('no')", "skip-execution"], "print('on')")
    done = run(tmp_path, "n.ipynb", "-o", "out.ipynb")
    assert done.returncode == 0 and "ran 2 cells" in done.stderr
    assert [text_of(cell) for cell in opened(tmp_path / "out.ipynb")] == ["ZeroDivisionError", "", "on\n"]


@pytest.mark.parametrize(
    ("code", "arguments", "says"),
    [
        ("import time; time.sleep(60)", ["--timeout", "0.5"], "TIMEOUT"),
        ("import os; os._exit(3)", [], "exited with code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", [], "CRASHED"),
        ("input('name? ')", [], "Put the value into the code"),
        ("raise KeyboardInterrupt", [], "KeyboardInterrupt"),
        ("1 +", [], "SyntaxError"),
    ],
)
def test_a_cell_that_does_not_end_well_is_explained(code: str, arguments: list[str], says: str, tmp_path: Path) -> None:
    notebook(tmp_path / "n.ipynb", "print('before')", code, "print('after')")
    done = run(tmp_path, "n.ipynb", "-o", "out.ipynb", *arguments)
    assert done.returncode == 1 and says in done.stderr and "1 not run" in done.stderr
    first, second, third = opened(tmp_path / "out.ipynb")
    assert text_of(first) == "before\n" and second.outputs[-1].output_type == "error" and not third.outputs


@pytest.mark.parametrize("code", ["import os; os._exit(3)", "import time; time.sleep(60)"])
def test_where_the_kernel_is_gone_or_hangs_errors_are_not_gone_over(code: str, tmp_path: Path) -> None:
    done = run(tmp_path, "-", "--allow-errors", "--timeout", "0.5", stdin=f"# %%\n{code}\n# %%\nprint('after')\n")
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize(
    ("content", "arguments", "says"),
    [
        (None, ["gone.ipynb"], "gone.ipynb cannot be read: No such file"),
        (None, ["."], "cannot be read: Is a directory"),
        ("{", ["n.ipynb"], "not a valid"),
        ('{"cells": 3}', ["n.ipynb"], "not a valid"),
        (b"\xff\xfe\x00", ["n.py"], "is not UTF-8 text"),
        ("1", ["n.py", "-o", "no/folder/out.ipynb"], "There is no folder"),
        ("1", ["n.py", "-o", "."], "is a folder"),
        ("1", ["n.py", "-p", "n"], "NAME=VALUE"),
        ("1", ["n.py", "-p", "a b=1"], "'a b' cannot name a parameter"),
        ("1", ["n.py", "--timeout", "0"], "above 0"),
        ("1", ["n.py", "--timeout", "nan"], "above 0"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(
    content: str | bytes | None, arguments: list[str], says: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / arguments[0]).write_bytes(content.encode() if isinstance(content, str) else content)
    arguments = arguments if "-o" in arguments else [*arguments, "-o", "out.ipynb"]
    done = run(tmp_path, *arguments)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr and not (tmp_path / "out.ipynb").exists()


def test_a_notebook_in_another_language_is_refused(tmp_path: Path) -> None:
    kernel = {"name": "ir", "display_name": "R", "language": "R"}
    notebook(tmp_path / "n.ipynb", "x <- 1", kernelspec=kernel)
    done = run(tmp_path, "n.ipynb")
    assert done.returncode == 2 and "its language is R" in done.stderr


def test_where_no_kernel_starts_the_file_stays_as_it_is(tmp_path: Path) -> None:
    source = notebook(tmp_path / "n.ipynb", "1")
    before = source.read_bytes()
    env = server_environment(tmp_path / "data", python="/nonexistent/python")
    done = subprocess.run(
        [*COMMAND, "n.ipynb", "-o", "n.ipynb"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 2 and "/nonexistent/python" in done.stderr
    assert source.read_bytes() == before


def test_a_disk_that_is_full_is_named_and_the_run_goes_on(namespaces: None, tmp_path: Path) -> None:
    notebook(tmp_path / "n.ipynb", "print('x' * 100_000)", "import time; time.sleep(0.3)", "open('ran', 'w').close()")
    small = tmp_path / "small"
    small.mkdir()
    mount = 'mount -t tmpfs -o size=20k quire "$0"'
    command = with_mount(mount, small, *COMMAND, "n.ipynb", "-o", "small/out.ipynb")
    env = server_environment(tmp_path / "data")
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 2 and (tmp_path / "ran").exists()
    assert done.stderr.count("now: No space left on device. The run continues.") == 1
    assert "out.ipynb cannot be written: No space left on device. What ran is not saved." in done.stderr
    assert list(tmp_path.glob(".quire-*")) == []
    assert "No space left" in run(tmp_path, "n.ipynb", "-o", "/dev/full").stderr


def test_a_reader_who_has_read_enough_ends_it(tmp_path: Path) -> None:
    (tmp_path / "n.py").write_text("while True: print('line')")
    command = f"{shlex.quote(sys.executable)} -m quire run n.py | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE)
    assert (done.stdout, done.stderr) == ("line\n141\n", "")


# As it goes


def test_each_cell_is_a_line_without_a_terminal(tmp_path: Path) -> None:
    done = run(tmp_path, "-", "-o", "out.ipynb", stdin="# %%\n1\n# %%\n1/0\n")
    first, second, *_ = done.stderr.splitlines()
    assert re.fullmatch(r"cell 1/2: SUCCESS, [\d.e-]+ s", first) and second.startswith("cell 2/2: ERROR, ")


def test_a_terminal_shows_the_cell_the_time_the_memory_and_the_last_line(tmp_path: Path) -> None:
    (tmp_path / "n.py").write_text(
        "# %%\nkept = bytearray(300_000_000)\n# %%\nimport time\nprint('[bold]so far')\ntime.sleep(3)\n# %%\n1/0"
    )
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [*COMMAND, "n.py", "-o", "-"]
    env = {**server_environment(tmp_path / "data"), "TERM": "xterm"}
    with subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        with io.FileIO(ours) as terminal:
            try:
                while data := terminal.read(65536):
                    seen += data
            except OSError:  # its other end is closed
                pass
        document = process.communicate(timeout=DEADLINE)[0]
    assert process.returncode == 1 and len(opened(document.decode())) == 3
    lines = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", seen.decode()).split("\r")
    during = [
        line for line in lines if line.startswith("cell 2/3") and "import time" in line and "[bold]so far" in line
    ]
    assert any(re.search(r"0:00:0[1-9]", line) for line in during)
    memory = re.search(r"([\d,]+) MiB", during[-1])
    assert memory and 286 <= int(memory[1].replace(",", "")) < 500
    assert "ZeroDivisionError" in lines[-2] + lines[-1] or "ZeroDivisionError" in seen.decode()
    assert "cell 3 of 3 failed (ERROR)." in seen.decode()


def test_killed_in_the_middle_it_leaves_a_valid_notebook_of_what_was_done(tmp_path: Path) -> None:
    out = tmp_path / "out.ipynb"
    notebook(tmp_path / "n.ipynb", "print('first')", f"print('second')\n{ENDLESS}", "3")
    with started(tmp_path, "n.ipynb", "-o", "out.ipynb") as process:
        wait_until(lambda: out.exists() and "begun" in text_of(opened(out)[1]), "what the second cell has printed")
        process.kill()
    assert [text_of(cell) for cell in opened(out)] == ["first\n", "second\nbegun\n", ""]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_told_to_stop_it_interrupts_the_cell_and_saves(number: int, tmp_path: Path) -> None:
    out = tmp_path / "out.ipynb"
    notebook(tmp_path / "n.ipynb", "print('first')", ENDLESS, "3")
    with started(tmp_path, "n.ipynb", "-o", "out.ipynb") as process:
        wait_until(lambda: out.exists() and "begun" in text_of(opened(out)[1]), "what the second cell has printed")
        assert process.stderr is not None and "cell 1/3" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(DEADLINE) == 128 + number
        assert "stopped in cell 2 of 3. What ran is in out.ipynb." in process.stderr.read()
    first, second, third = opened(out)
    assert text_of(first) == "first\n" and "KeyboardInterrupt" in text_of(second) and not third.outputs


def test_a_cell_that_does_not_stop_is_killed_when_told_again(tmp_path: Path) -> None:
    (tmp_path / "n.py").write_text(DEAF)
    with started(tmp_path, "n.py", grace=4 * DEADLINE) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "no\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 130


def test_told_to_stop_before_anything_began_it_says_so(tmp_path: Path) -> None:
    slow = tmp_path / "python"
    go = tmp_path / "go"
    slow.write_text(f'#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.05; done\nexec {shlex.quote(sys.executable)} "$@"\n')
    slow.chmod(0o755)
    (tmp_path / "n.py").write_text("print('ran')")
    env = server_environment(tmp_path / "data", python=slow)
    command = [*COMMAND, "n.py", "-o", "out.ipynb"]
    with subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: processes_of(process.pid), "the kernel's Python")
        process.send_signal(signal.SIGINT)
        go.touch()
        assert process.wait(DEADLINE) == 130
        assert process.stderr is not None and process.stderr.read() == "quire: nothing was run.\n"
    assert not (tmp_path / "out.ipynb").exists()


# The page

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "run.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_shows_what_happens(tmp_path: Path) -> None:
    page = FENCE.findall(PAGE.read_text("utf-8"))
    (script,) = [body for kind, body in page if kind == "python"]
    (tmp_path / "report.py").write_text(script)
    env = server_environment(tmp_path / "data")
    env["PATH"] = f"{preloaded.folder_of_quire()}:{env['PATH']}"
    shown = "".join(f"\n{body}" for kind, body in page if kind == "sh")
    steps = [each.partition("\n") for each in re.split(r"^\$ ", shown, flags=re.MULTILINE)[1:]]
    assert steps
    for command, _, expected in steps:
        done = subprocess.run(
            ["bash", "-c", f"exec 2>&1; {command}"],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        assert settled(done.stdout) == settled(expected), command


def settled(text: str) -> str:
    return re.sub(r"\d[\d.e-]* s\b", "N s", text).strip()


async def test_a_cell_that_is_started_after_it_was_told_to_stop_is_stopped() -> None:
    notebook = Notebook(id=NotebookId("n"), name="n", owner=LOCAL, runtime="python", created_at=0)
    active = ActiveRun(notebook, NewCell(source="1"), 1.0, Transcript(1), "command line")
    stopping = Stopping()
    stopping.stop(signal.SIGTERM)
    stopping.take(active)
    assert active.stop_reason is StopReason.INTERRUPT
