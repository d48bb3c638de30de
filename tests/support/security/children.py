"""Programs that give up rights, each in a process of its own: never in the one that tests."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.security.child import NOBODY
from tests.support.waiting import DEADLINE

WHO = ("root", "user")

BEGIN = """
import ctypes, errno, json, os, sys, threading
from tests.support.security.child import become, tried
from quire.os_sandbox import landlock, libc, privileges, seccomp
become({who!r})
"""
FILTERED = """
privileges.no_new_privs()
seccomp.install(seccomp.program(os.uname().machine))
"""


def run(who: str, body: str, folder: Path, *, filtered: bool = False) -> Any:
    """What a program left in `answer`, run by root or by an ordinary user in a folder of theirs."""
    finished = start(who, body + "\nprint('\\n' + json.dumps(answer))", folder, filtered=filtered)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return json.loads(finished.stdout.splitlines()[-1])


def start(who: str, body: str, folder: Path, *, filtered: bool = False) -> subprocess.CompletedProcess[str]:
    code = BEGIN.format(who=who) + (FILTERED if filtered else "") + body
    found = os.pathsep.join(filter(None, (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH"))))
    places = {"HOME": str(folder), "TMPDIR": str(folder), "PYTHONPATH": found}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, **places, "MPLBACKEND": "agg", "MPLCONFIGDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        start_new_session=True,  # without a terminal
        check=False,
    )


@contextlib.contextmanager
def own_folder(who: str) -> Iterator[Path]:
    """One that an ordinary user can reach, as pytest's cannot."""
    if who == "root" and os.getuid() != 0:
        pytest.skip("these tests are not run by root")
    folder = Path(tempfile.mkdtemp(prefix="quire-security-", dir="/tmp"))
    try:
        if who == "user" and os.getuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield folder
    finally:
        shutil.rmtree(folder)
