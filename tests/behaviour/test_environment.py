"""A notebook with its own virtual environment: made in its workspace, installed into while it runs, and kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from tests.support.servers import call, stdio_client, text

INDEX = "pypi.org,files.pythonhosted.org"
LOOK = "import six, sys\n[six.__name__, six.__file__.startswith(sys.prefix), sys.prefix]"


async def test_installed_packages_stay_after_a_crash_a_reset_and_a_restart(data_dir: Path) -> None:
    async with stdio_client(data_dir, network=INDEX) as client:
        made = await call(client, "create_notebook", name="own", python="venv")
        folder = str(Path(made.structured_content["workspace"]) / ".venv")
        before = await call(client, "execute", code="import sys\nx = 41\nsys.prefix", timeout=120)
        assert before.structured_content["return_value"] == folder, text(before)
        missing = await call(client, "execute", code="import six")
        assert missing.structured_content["error_type"] == "ModuleNotFoundError"

        installed = await call(client, "execute", code="%pip install six", timeout=120)
        assert not installed.is_error, text(installed)
        assert await value(client, LOOK) == ["six", True, folder]
        assert await value(client, "x") == 41  # in the kernel that was there

        crash = await call(client, "execute", code="import os\nos.abort()")
        assert crash.structured_content["state"] == "CRASHED"
        assert await value(client, LOOK) == ["six", True, folder]
        await call(client, "reset")
        assert await value(client, LOOK) == ["six", True, folder]

        await call(client, "create_notebook", name="another", python="venv")
        elsewhere = await call(client, "execute", code="import six", timeout=120)
        assert elsewhere.structured_content["error_type"] == "ModuleNotFoundError"
    async with stdio_client(data_dir, network=INDEX) as client:
        await call(client, "use_notebook", name="own")
        assert await value(client, LOOK) == ["six", True, folder]
        branch = await call(client, "branch_notebook", name="branch of it")
        assert not branch.is_error, text(branch)
        assert await value(client, LOOK) == ["six", True, folder]
        await call(client, "reset")
        assert await value(client, LOOK) == ["six", True, folder]


async def test_a_failed_installation_is_an_error_and_keeps_variables(
    client: Client[Any],
) -> None:
    await call(client, "create_notebook", name="own", python="venv")
    await call(client, "execute", code="x = 41", timeout=120)
    failed = await call(client, "execute", code="%pip install --no-index quire-has-no-such-package", timeout=120)
    found = failed.structured_content
    assert (found["state"], found["error_type"]) == ("ERROR", "RuntimeError")
    assert "quire-has-no-such-package" in found["stdout"] + found["stderr"]
    assert await value(client, "x") == 41


@pytest.mark.parametrize("python", ["/nowhere/bin/python", "/", "/bin/true"])
async def test_a_bad_interpreter_is_named_and_other_notebooks_run(client: Client[Any], python: str) -> None:
    made = await call(client, "create_notebook", python=python, use=False)
    assert not made.is_error
    wrong = made.structured_content["name"]
    for _ in range(2):
        refused = await call(client, "execute", code="x = 41", notebook=wrong, timeout=30)
        reason = f"with {python}: it ended" if python == "/bin/true" else f"Python could not be started ({python}: "
        assert refused.is_error and reason in text(refused) and text(refused).endswith("`python`."), text(refused)
    kept = await call(client, "list_notebooks")
    info = {each["name"]: each for each in kept.structured_content["notebooks"]}[wrong]
    assert (info["kernel"], info["cells"], info["runs"]) == ("not started", 0, 0)
    added = await call(client, "add_cell", code="x = 41", execute=False, notebook=wrong)
    assert not added.is_error  # it can be edited all the same
    assert await value(client, "40 + 2") == 42


async def value(client: Client[Any], code: str) -> Any:
    result = await call(client, "execute", code=code, timeout=120)
    assert not result.is_error, text(result)
    return result.structured_content["return_value"]
