"""`%pip` and `!pip` in cells: the environment's own pip, into a folder of the notebook where its own is read-only."""

from __future__ import annotations

import os

import pytest
from uv import find_uv_bin

from tests.support.notebooks import Book
from tests.support.servers import text

WHEEL = """
import zipfile
info = "{name}-{version}.dist-info"
files = {{
    "{name}/__init__.py": "version = '{version}'",
    "{name}/only_{version[0]}.py": "",
    f"{{info}}/METADATA": "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n{requires}",
    f"{{info}}/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
}}
files[f"{{info}}/RECORD"] = "".join(f"{{name}},,\\n" for name in [*files, f"{{info}}/RECORD"])
with zipfile.ZipFile("{name}-{version}-py3-none-any.whl", "w") as wheel:
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


def wheel(name: str, version: str, requires: str = "") -> str:
    """A cell that makes a package."""
    required = f"Requires-Dist: {requires}\\n" if requires else ""
    return WHEEL.format(name=name, version=version, requires=required)


async def said(book: Book, line: str) -> str:
    done = await book.run(line, timeout=60)
    assert not done.is_error, text(done)
    return text(done)


async def test_pip_does_what_the_pip_of_the_environment_does(book: Book) -> None:
    for version in ("1.0", "2.0"):
        await book.run(wheel("greeting", version))
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


@pytest.mark.parametrize("line", ["%pip install nowhere", "!pip install nowhere", "!python -m pip download six"])
async def test_an_installation_that_is_not_granted_is_not_tried_again(book: Book, line: str) -> None:
    done = await book.run(line, timeout=60)
    assert "Not connected to pypi.org:443" in text(done) and "ended with code" in text(done)
    assert "Retrying" not in text(done)


async def test_what_is_installed_is_not_installed_again(book: Book) -> None:
    satisfied = await said(book, "%pip install numpy")
    assert "Requirement already satisfied: numpy" in satisfied and "Not connected" not in satisfied
    await book.run(wheel("needs", "1.0", requires="iniconfig>=1"))
    assert "Requirement already satisfied: iniconfig>=1" in await said(book, f"%pip install {HERE} needs")
    assert await book.value("import needs\nneeds.version") == "1.0"
    assert "Requirement already satisfied: needs" in await said(book, "!pip install needs")
    assert "Requirement already satisfied: needs" in await said(book, "%pip install --user needs")


async def test_a_package_of_the_environment_is_replaced_for_the_notebook_only(book: Book) -> None:
    version = "import importlib.metadata\nimportlib.metadata.version('iniconfig')"
    own = await book.value(version)
    await book.run(wheel("iniconfig", "99.0"))
    await book.run(wheel("needs", "1.0", requires="iniconfig<99"))
    await said(book, f"%pip install {HERE} --no-deps needs")
    conflict = await said(book, f"%pip install {HERE} -U iniconfig")
    assert await book.value(version) == "99.0" and "which is incompatible" in conflict
    assert "needs 1.0 has requirement iniconfig<99" in text(await book.run("%pip check", timeout=60))
    assert "iniconfig==99.0" in await said(book, "!pip freeze")
    await said(book, "%pip uninstall -y needs iniconfig")
    assert await book.value(version) == own
    assert "Can't uninstall" in await said(book, "%pip uninstall -y iniconfig")


@pytest.mark.parametrize("start", ["%%bash\n", "import subprocess, sys\nsubprocess.run([sys.executable, '-m', "])
async def test_pip_that_is_started_otherwise_is_not_tried_again(book: Book, start: str) -> None:
    end = "pip download six" if start[0] == "%" else "'pip', 'download', 'six'], check=True)"
    done = await book.run(start + end, timeout=60)
    assert "Not connected to pypi.org:443" in text(done) and "CalledProcessError" in text(done)
    assert "Retrying" not in text(done)


async def test_uv_is_not_tried_again_and_is_remarked_on(book: Book) -> None:
    await book.run(f"import os; os.environ['PATH'] += os.pathsep + {os.path.dirname(find_uv_bin())!r}")
    done = await book.run("!uv pip install --system --target got six", timeout=60)
    assert "Not connected to pypi.org:443" in text(done) and "retries" not in text(done)
    assert "[quire] uv pip install --system --target got six ended with code" in text(done)


async def test_what_an_earlier_version_installed_is_still_there_and_can_be_removed(book: Book) -> None:
    await book.run(wheel("greeting", "1.0"))
    await said(book, f"%pip install {HERE} --target .packages greeting")
    assert (await book.value(LOOK))[0] == "1.0"
    await book.run(wheel("greeting", "2.0"))
    assert "Successfully installed greeting-2.0" in await said(book, f"%pip install -U {HERE} greeting")
    assert (await book.value(LOOK))[0] == "2.0"
    await said(book, "%pip uninstall -y greeting")
    assert "NotFound" in text(await book.run("importlib.metadata.version('greeting')"))
