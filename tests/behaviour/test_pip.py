"""`%pip` and `!pip` in cells: the environment's own pip, into a folder of the notebook where its own is read-only."""

from __future__ import annotations

import pytest

from tests.support.notebooks import Book
from tests.support.servers import text

WHEELS = """
import zipfile
for version in ("1.0", "2.0"):
    info = f"greeting-{version}.dist-info"
    files = {
        "greeting/__init__.py": f"version = {version!r}",
        f"greeting/only_{version[0]}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: greeting\\nVersion: {version}\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(f"greeting-{version}-py3-none-any.whl", "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
"""
HERE = "--no-index --find-links ."
LOOK = """
import importlib, importlib.metadata, os, sys
sys.modules.pop("greeting", None)
import greeting
folder = os.path.dirname(greeting.__file__)
[greeting.version, importlib.metadata.version("greeting"), sorted(n for n in os.listdir(folder) if n[:4] == "only")]
"""


async def said(book: Book, line: str) -> str:
    done = await book.run(line, timeout=60)
    assert not done.is_error, text(done)
    return text(done)


async def test_pip_does_what_the_pip_of_the_environment_does(book: Book) -> None:
    await book.run(WHEELS)
    assert (await said(book, "%pip --version")).startswith("pip ")
    await said(book, "%pip config list")
    assert "greeting-1.0" in await said(book, f"%pip download {HERE} greeting==1.0 -d got")
    assert "greeting" in await said(book, f"!pip index versions greeting {HERE}")
    await said(book, f"%pip install --user --no-warn-script-location {HERE} greeting==1.0")
    assert await book.value(LOOK) == ["1.0", "1.0", ["only_1.py"]]
    assert "Version: 1.0" in await said(book, "%pip show greeting")
    assert "2.0" in await said(book, f"%pip list -o {HERE}")
    await said(book, f"%pip install -U {HERE} greeting>=1,<3")
    assert await book.value(LOOK) == ["2.0", "2.0", ["only_2.py"]]
    assert "installed\n" in await said(book, f"%pip install {HERE} greeting==1.0 > log && echo installed")
    assert await book.value(LOOK) == ["1.0", "1.0", ["only_1.py"]]
    await said(book, "%pip uninstall -y Greeting")
    assert "NotFound" in text(await book.run("importlib.metadata.version('greeting')"))


@pytest.mark.parametrize("ending", ["", " | cat", " > log 2>&1", " || true"])
async def test_a_failed_installation_by_a_command_is_remarked_on(book: Book, ending: str) -> None:
    done = await book.run(f"!pip install --no-index nowhere-to-be-found{ending}", timeout=60)
    assert done.structured_content["state"] == "SUCCESS"  # as any command
    assert "[quire] pip install --no-index nowhere-to-be-found ended with code 1." in text(done)


@pytest.mark.parametrize("line", ["%pip install six", "!pip install six", "!python -m pip download six"])
async def test_an_installation_that_is_not_granted_is_not_tried_again(book: Book, line: str) -> None:
    done = await book.run(line, timeout=60)
    assert "Not connected to pypi.org:443" in text(done) and "ended with code" in text(done)
    assert "Retrying" not in text(done)
