"""Images: a guest's whole state, taken and put back."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.runtimes.wasm.host.guest import PAGE, Bounds, Ended, Image
from quire.runtimes.wasm.host.python.language import PythonLanguage
from quire.runtimes.wasm.host.python.memory import Memory, differing
from tests.support.wasm.python_guest import Make, Notebook

STATE = """
import datetime, decimal, io, os, re, sqlite3, collections, dataclasses
def squares():
    for n in range(10):
        yield n * n
half = squares(); next(half); next(half)
class A:
    def __init__(self, x): self.x = x
    def twice(self): return self.x * 2
a = A(21)
def counter():
    n = 0
    def up():
        nonlocal n
        n += 1
        return n
    return up
up = counter(); up()
add = lambda y: y + a.x
words = io.StringIO(); words.write('one ')
db = sqlite3.connect(':memory:'); db.execute('create table t (a)'); db.execute('insert into t values (7)')
when = datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone.utc)
money = decimal.Decimal('1.10')
order = {'b': 1, 'a': 2}; order['c'] = 3
pattern = re.compile(r'(\\w)\\d')
big = 2 ** 500
many = list(range(50_000))
os.mkdir('sub'); os.chdir('sub')
os.environ['MINE'] = 'yes'
"""
LOOK = """
[next(half), a.twice(), up(), add(1), words.write('two') and words.getvalue(), db.execute('select * from t').fetchall(),
 when.isoformat(), str(money), list(order), pattern.match('x1').group(1), str(big % 10**9), sum(many), os.getcwd(),
 os.environ['MINE']]
"""
SEEN = [4, 42, 2, 22, "one two", [[7]], "2024-02-29T00:00:00+00:00", "1.10", ["b", "a", "c"], "x"]
SEEN += [str(2**500 % 10**9), sum(range(50_000)), "/workspace/sub", "yes"]


def test_everything_in_memory_comes_back(make: Make) -> None:
    first = make()
    assert first.run(STATE).finished.outcome == "success"
    image = first.guest.image()
    second = make(image=image)
    assert second.run(LOOK).value == SEEN
    assert first.run(LOOK).value == SEEN  # which went on by itself


def test_an_image_is_what_differs_and_no_more(make: Make) -> None:
    notebook = make()
    notebook.run("x = 1")
    small = notebook.guest.image()
    assert len(small.pages) * PAGE < small.size / 10
    notebook.run("y = bytearray(b'x' * 1_000_000)")
    assert 200 < len(notebook.guest.image().pages) - len(small.pages) < 1_000


def test_one_image_makes_many_guests_that_know_nothing_of_each_other(make: Make) -> None:
    first = make()
    first.run("x = [0]")
    image = first.guest.image()
    several = [make(image=image) for _ in range(3)]
    for number, each in enumerate(several):
        each.run(f"x.append({number})")
    assert [each.run("x").value for each in several] == [[0, 0], [0, 1], [0, 2]]


@pytest.mark.plain_guest_only("it is tested in tests/wasm/science, with more memory or other words")
def test_a_guest_put_back_has_nothing_of_what_it_was_since(make: Make) -> None:
    notebook = make()
    notebook.run("x = 1")
    image = notebook.guest.image()
    notebook.run("x = 2; y = list(range(100_000))")
    notebook.guest.restore(image)
    assert notebook.run("x, 'y' in globals()").value == [1, False]
    assert notebook.guest.image().size == image.size


def test_images_of_images_are_as_good(make: Make) -> None:
    notebook = make()
    notebook.run("n = 0")
    for _ in range(4):
        notebook = make(image=notebook.guest.image())
        notebook.run("n += 1; hold = bytearray(n * 1_000_000)")
    assert notebook.run("n, len(hold)").value == [4, 4_000_000]


def test_an_image_of_another_program_is_refused(make: Make) -> None:
    image = make().guest.image()
    with pytest.raises(Ended, match="another version"):
        make(image=Image(artefact="python-other", size=image.size, pages=image.pages))


def test_an_image_that_is_damaged_is_refused(make: Make) -> None:
    image = make().guest.image()
    for number, page in ((image.size // PAGE, bytes(PAGE)), (-1, bytes(PAGE)), (5, b"short")):
        with pytest.raises(Ended, match="damaged"):
            make(image=Image(artefact=image.artefact, size=image.size, pages={**image.pages, number: page}))


@pytest.mark.plain_guest_only("it is tested in tests/wasm/science, with more memory or other words")
def test_an_image_larger_than_the_limit_is_refused(make: Make) -> None:
    notebook = make()
    notebook.run("x = bytearray(60_000_000)")
    with pytest.raises(Ended, match=r"needs .* bytes of memory"):
        make(Bounds(memory=48 << 20), image=notebook.guest.image())


def test_two_of_one_image_draw_different_random_numbers(make: Make) -> None:
    notebook = make()
    notebook.run("import random, secrets, uuid\nrandom.seed(1)")
    image = notebook.guest.image()
    draw = "[random.random(), secrets.token_hex(), str(uuid.uuid4())]"
    one, other = make(image=image).run(draw).value, make(image=image).run(draw).value
    assert all(a != b for a, b in zip(one, other, strict=True))


def test_taking_an_image_leaves_random_numbers_as_they_were(make: Make) -> None:
    plain, imaged = make(), make()
    for each in (plain, imaged):
        each.run("import random\nrandom.seed(5)")
    imaged.guest.image()
    assert plain.run("random.random()").value == imaged.run("random.random()").value


def test_open_files_are_open_where_they_were(make: Make, workspace: Path) -> None:
    (workspace / "read.txt").write_text("abcdef")
    notebook = make()
    notebook.run(
        "r = open('read.txt'); r.read(2)\nw = open('new.txt', 'w'); w.write('one'); w.flush()\n"
        "n = open('read.txt'); n.close()"
    )
    image = notebook.guest.image()
    assert image.rest == ""
    assert notebook.run("w.write(' two'); w.flush(); r.read()").value == "cdef"
    again = make(image=image)
    assert again.run("r.read()").value == "cdef"
    assert again.run("w.write(' THREE'); w.close(); open('new.txt').read()").value == "one THREE"


def test_a_file_that_is_gone_is_an_error_and_not_the_guests_end(make: Make, workspace: Path) -> None:
    notebook = make()
    notebook.run("f = open('gone.txt', 'w')\nf.write('x'); f.flush()")
    image = notebook.guest.image()
    (workspace / "gone.txt").unlink()
    again = make(image=image)
    assert "OSError" in again.run("f.write('y'); f.flush()").raised
    assert again.run("1 + 1").value == 2


def test_a_database_in_a_file_is_open_where_an_image_is_put_back(make: Make) -> None:
    notebook = make()
    ran = notebook.run("import sqlite3\ndb = sqlite3.connect('a.db')\ndb.execute('create table t (a)'); db.commit()")
    assert ran.finished.outcome == "success", ran.raised
    again = make(image=notebook.guest.image())
    assert again.run(
        "db.execute('insert into t values (5)'); db.commit(); db.execute('select * from t').fetchall()"
    ).value == [[5]]


def test_streams_of_the_system_are_there_where_an_image_is_put_back(make: Make) -> None:
    notebook = make()
    code = "import os\nwith os.fdopen(1, 'w', closefd=False) as out: out.write('x')\nos.write(2, b'raw')"
    assert notebook.run(code).value == 3
    assert make(image=notebook.guest.image()).run(code).value == 3


def test_an_image_can_be_taken_of_a_guest_in_which_nothing_has_run(notebook: Notebook, make: Make) -> None:
    assert make(image=notebook.guest.image()).run("1 + 1").value == 2


@pytest.mark.plain_guest_only("its memory is looked at in another way")
def test_the_pages_that_the_system_says_were_written_are_those_that_differ(
    make: Make, language: PythonLanguage
) -> None:
    notebook, other = make(), make()
    notebook.run(STATE)
    memory, fresh = notebook.guest._memory, language._program.fresh
    if memory.find() is None:
        pytest.skip("the system does not show where a guest's memory is")
    named = set(fresh.changed(memory))
    assert named == set(differing(memory.sums(), fresh._sums()))
    through_the_window = Memory(notebook.guest._instance)
    assert through_the_window.read(sorted(named)) == memory.read(sorted(named))
    assert memory.find() != other.guest._memory.find() is not None


@pytest.mark.plain_guest_only("its memory is looked at in another way")
def test_where_the_system_does_not_show_memory_it_is_summed(make: Make, language: PythonLanguage) -> None:
    first, second = make(), make()
    for each in (first, second):
        each.guest._memory._looked = True  # and nothing was found
    first.run(STATE)
    second.guest.restore(first.guest.image())
    assert second.run(LOOK).value == SEEN


def test_a_guest_that_was_made_ahead_is_as_any_other(make: Make, language: PythonLanguage, workspace: Path) -> None:
    make().guest.image()
    language.prepare()
    ahead, usual = make(), make()
    ahead.run(STATE)
    assert [each.name for each in workspace.iterdir()] == ["sub"]
    usual.guest.restore(ahead.guest.image())
    assert usual.run(LOOK).value == SEEN
    language.prepare()
    assert make(image=ahead.guest.image()).run(LOOK).value == SEEN


@pytest.mark.plain_guest_only("none is made ahead")
def test_a_guest_that_was_made_ahead_has_its_own_limits(make: Make, language: PythonLanguage) -> None:
    language.prepare()
    with pytest.raises(Ended, match="No guest could be made"):
        make(Bounds(memory=1 << 20))
    ahead = make(Bounds(memory=64 << 20, fuel=10**8))
    assert "MemoryError" in ahead.run("x = bytearray(100 << 20)").raised
    with pytest.raises(Ended, match="fuel"):
        ahead.run("while True: pass")
