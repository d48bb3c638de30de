"""The check of words finds them in prose and in names, also over the end of a line, and knows exceptions."""

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools/check-prose"
CODE = """# A comment with lorem
# ipsum in it.
def run_dolor() -> None: ...
allowed = "dolor"
dolors = ipsum = 1
"""


def test_words_are_found_in_prose_and_names(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "src/code.py").write_text(CODE)
    (tmp_path / "tools/prose_words.txt").write_text("# comment\ndolor\nlorem ipsum\n")
    (tmp_path / "tools/prose_exceptions.txt").write_text('src/code.py: allowed = "dolor"\n')
    checked = subprocess.run([sys.executable, TOOL, tmp_path], capture_output=True, text=True)
    assert [line.split(" is in ")[0] for line in checked.stdout.splitlines()] == [
        "src/code.py:1: 'lorem # ipsum'",
        "src/code.py:3: 'dolor'",
    ]
    assert checked.returncode == 1


def test_this_project_passes() -> None:
    checked = subprocess.run([sys.executable, TOOL], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
