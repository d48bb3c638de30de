"""Pages written before a fork are copied after it in one go."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waiting import DEADLINE

PAGES = 300
FAULTS_OF_WRITING_AGAIN = """
import mmap, os, resource
from quire.worker.processes import copy_on_write

def write():
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

memory = mmap.mmap(-1, {pages} * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE)
write()
ranges = copy_on_write.written_pages()
told, tell = os.pipe()
if os.fork() == 0:
    os.close(tell)
    os.read(told, 1)  # until the other one has ended
    os._exit(0)
os.close(told)
if {copies}:
    copy_on_write.copy_pages(ranges)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(write() - before)
"""


def _faults(copies: bool, pages: int = PAGES) -> int:
    program = FAULTS_OF_WRITING_AGAIN.format(copies=copies, pages=pages)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE, check=True)
    return int(said.stdout)


def test_copied_pages_cause_no_page_faults() -> None:
    assert _faults(copies=False) >= PAGES
    assert _faults(copies=True) < PAGES / 10


def test_large_data_is_not_copied() -> None:
    assert _faults(copies=True, pages=10_000) >= 10_000
