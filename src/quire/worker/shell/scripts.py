"""`%%bash` and similar magics: run a program with the cell's text as its input."""

from __future__ import annotations

import argparse
import codecs
import os
import selectors
import shlex
import subprocess
import sys
from typing import Any, NoReturn

from quire.worker.shell import programs

PROGRAMS = ("bash", "sh", "perl", "ruby", "python", "python2", "python3", "pypy")


class BadOption(ValueError):
    """Invalid arguments of `%%script`."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadOption(message)


def run(line: str, cell: str, namespace: dict[str, Any]) -> None:
    """Run the program named after %%script. Raises CalledProcessError if it fails."""
    options, command = _parser().parse_known_args(shlex.split(line))
    if not command:
        raise BadOption("%%script needs a program: %%script bash")
    if command[0] in ("python", "python3"):
        command[0] = sys.executable
    try:
        process = programs.start(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if options.bg else subprocess.PIPE,
            stderr=subprocess.DEVNULL if options.bg else subprocess.PIPE,
        )
    except FileNotFoundError:
        print(f"Couldn't find program: {command[0]!r}")
        return
    input_data = (cell if cell.endswith("\n") else f"{cell}\n").encode("utf-8", "replace")
    if options.bg:
        _start_in_background(process, input_data)
        if options.proc:
            namespace[options.proc] = process
        return
    output = _relay(process, input_data, options)
    for name, stream in ((options.out, "stdout"), (options.err, "stderr")):
        if name:
            namespace[name] = output[stream]
    if process.returncode and options.raise_error:
        raise subprocess.CalledProcessError(process.returncode, input_data)


def _parser() -> _Parser:
    parser = _Parser(prog="%%script", add_help=False, allow_abbrev=False)
    parser.add_argument("--out")
    parser.add_argument("--err")
    parser.add_argument("--bg", action="store_true")
    parser.add_argument("--proc")
    parser.add_argument("--no-raise-error", action="store_false", dest="raise_error")
    return parser


def _start_in_background(process: subprocess.Popen[bytes], input_data: bytes) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(input_data)
        process.stdin.close()
    except BrokenPipeError:
        pass


def _relay(process: subprocess.Popen[bytes], input_data: bytes, options: argparse.Namespace) -> dict[str, str]:
    """Send the input and relay the output until the program ends. Returns the captured output."""
    output = {"stdout": "", "stderr": ""}
    is_captured = {"stdout": bool(options.out), "stderr": bool(options.err)}
    decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in output}

    def on_output(name: str, data: bytes, last: bool = False) -> None:
        text = decoders[name].decode(data, last)
        if is_captured[name]:
            output[name] += text
        elif text:
            stream = getattr(sys, name)
            stream.write(text)
            stream.flush()

    try:
        _exchange(process, input_data, on_output)
        process.wait()
    except BaseException:
        programs.stop(process)
        raise
    for name in output:
        on_output(name, b"", last=True)
    return output


def _exchange(process: subprocess.Popen[bytes], input_data: bytes, on_output: Any) -> None:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    with selectors.DefaultSelector() as selector, process.stdin, process.stdout, process.stderr:
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
        selector.register(process.stdout, selectors.EVENT_READ, "stdout")
        selector.register(process.stderr, selectors.EVENT_READ, "stderr")
        while selector.get_map():
            events = selector.select(0.05)
            for key, _ in events:
                if key.data == "stdin":
                    input_data = _write_input(key.fd, input_data)
                    if not input_data:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                elif data := os.read(key.fd, 1 << 16):
                    on_output(key.data, data)
                else:
                    selector.unregister(key.fileobj)
            if not events and process.poll() is not None:
                return  # a background process may keep the streams open


def _write_input(fd: int, input_data: bytes) -> bytes:
    try:
        return input_data[os.write(fd, input_data[: 1 << 16]) :]
    except BrokenPipeError:
        return b""
