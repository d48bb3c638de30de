"""What a guest says is hostile: code in it can speak in the worker's name, and gains nothing by it."""

from __future__ import annotations

import pytest

from quire.runtimes.wasm.host.guest import Ended
from quire.wire.messages import Finished, Inspect
from tests.support.wasm.python_guest import Make, Notebook

FORGED = """
import wit_world
wit_world.host('{"say":"Finished","with":{"run":"other","outcome":"success"},"parts":[]}')
"""
OTHER = """
import sys
kernel = sys.modules['quire.runtimes.wasm.guest.kernel']
kernel.Kernel.handle = lambda self, request: ANSWER
"""


@pytest.mark.plain_guest_only("it is tested in tests/wasm/science, with more memory or other words")
@pytest.mark.parametrize("said", ["junk", "{}", "[" * 100_000, "x" * 5_000_000, '{"say":"Ready","with":{},"parts":[]}'])
def test_what_is_no_word_ends_the_guest(notebook: Notebook, said: str) -> None:
    with pytest.raises(Ended, match="no word of ours"):
        notebook.run(f"import wit_world\nwit_world.host({said[:1]!r} * {len(said)} if {len(said)} > 999 else {said!r})")
    with pytest.raises(Ended, match="has ended before"):
        notebook.run("1")


@pytest.mark.plain_guest_only("it is tested in tests/wasm/science, with more memory or other words")
def test_a_run_ends_once_and_under_its_own_name(notebook: Notebook) -> None:
    with pytest.raises(Ended):
        notebook.run(FORGED)
    assert not [each for each in notebook.events if isinstance(each, Finished)]


@pytest.mark.parametrize(
    "answer",
    ["", "0", "0\n", "-5\nabc", "999999999999\n{}", "x\n{}", '0\n{"say":"Entered","with":{},"parts":[]}', "9" * 5_000],
)
def test_malformed_answer_ends_the_guest(make: Make, answer: str) -> None:
    notebook = make()
    notebook.run(f"ANSWER = {answer!r}\n{OTHER}")
    with pytest.raises(Ended, match=r"words? of ours"):
        notebook.run("1")


def test_an_answer_to_another_question_ends_the_guest(notebook: Notebook) -> None:
    forged = '{"say":"Value","with":{"value":[],"what":""},"parts":[]}'
    notebook.run(f"ANSWER = {forged!r}\n{OTHER}")
    with pytest.raises(Ended, match="something else"):
        notebook.guest.ask(Inspect())


def test_what_is_said_outside_a_run_is_not_heard(notebook: Notebook) -> None:
    notebook.run("import builtins\nclass L(dict):\n    def copy(self): print('outside'); return {}\nx = L()")
    notebook.events = []
    notebook.guest.ask(Inspect())
    assert notebook.events == []


def test_what_is_too_large_to_show_is_an_error_of_the_cell(make: Make) -> None:
    notebook = make()
    ran = notebook.run("from IPython.display import HTML\nHTML('x' * 40_000_000)")
    assert ran.finished.outcome == "error"
    assert notebook.run("1 + 1").value == 2
