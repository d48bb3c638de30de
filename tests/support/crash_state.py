"""State that a crash must not change: set it up, run code that attacks it, check that it is unchanged."""

from __future__ import annotations

from typing import Any

from tests.support.notebooks import Book
from tests.support.processes import alive, here
from tests.support.servers import text
from tests.support.waiting import wait_until

AS_BEFORE = "Variables are as they were before this cell."
_EARLIER = """
import threading
x = 41
squares = (n * n for n in range(10))
next(squares), next(squares)
lock = threading.Lock()
lock.acquire()
file = open('earlier.txt', 'w+')
file.write('first line')
file.flush()
numbers = [1]
"""
_OWN = """
import os, subprocess, sys, time
own = 1
numbers.append(2)
next(squares)
lock.release()
file.write(', lost')
file.flush()
os.chdir('/')
child = subprocess.Popen(['sleep', '1000'], start_new_session=True)
print('before', child.pid, os.readlink('/proc/self/ns/pid'))
"""
_LATER = """
import os
file.write(', second line')
file.flush()
file.seek(0)
x, next(squares), lock.locked(), file.read(), numbers, 'own' in globals(), os.getcwd() == os.path.dirname(file_path)
"""


async def have_state(book: Book) -> None:
    """A cell whose variables no pickle could keep: a generator, a lock, an open file."""
    await book.value(_EARLIER + "import os\nfile_path = os.path.abspath(file.name)")


async def attack(book: Book, code: str, timeout: float = 30) -> Any:
    """Run code that first changes all of that state, starts a process in a session of its own, and prints."""
    return await book.run(_OWN + code, timeout=timeout)


async def is_undone(book: Book, result: Any, state: str, *words: str) -> None:
    """The cell ended so and says why; it printed what it printed, and left nothing else behind."""
    found = result.structured_content
    assert (result.is_error, found["state"]) == (True, state), text(result)
    assert [word for word in (*words, AS_BEFORE) if word not in found["error_message"]] == [], found["error_message"]
    await nothing_runs_of(result)
    await state_is_as_before(book)


async def nothing_runs_of(result: Any) -> None:
    before, pid, namespace = result.structured_content["stdout"].split()
    assert before == "before"
    wait_until(lambda: not alive(here(int(pid), namespace)), "what the cell started is gone")


async def state_is_as_before(book: Book) -> None:
    after = await book.run(_LATER)
    assert not after.is_error, text(after)
    assert after.structured_content["return_value"] == [41, 4, True, "first line, second line", [1], False, True]
    assert "notice" not in after.structured_content
