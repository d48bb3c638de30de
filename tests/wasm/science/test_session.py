"""Python with libraries as a client sees it: which it is, a table, a figure, and what is there after a restart."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from quire.runtimes.wasm.host.guest import NotReady
from quire.runtimes.wasm.host.science.language import ScienceLanguage
from tests.support.servers import call, stdio_client, text
from tests.support.wasm.assets import science_assets_dir

pytestmark = pytest.mark.soak

SET: dict[str, Any] = {"toolsets": "sandbox,repl", "preload": "", "spare_kernels": 0, "wasm_python": "science"}

FIT = """
from sklearn.linear_model import LinearRegression
m = LinearRegression().fit([[1], [2]], [2, 4])
round(m.coef_[0].item())
"""


async def test_which_python_it_is_is_told_and_its_libraries_work(data_dir: Path) -> None:
    async with stdio_client(data_dir, assets_dir=science_assets_dir(), **SET) as client:
        ran = await call(client, "execute_code", code="import pandas as pd\npd.DataFrame({'a': [1, 2]}).a.sum().item()")
        assert ran.structured_content["return_value"] == 3, text(ran)
        drawn = await call(client, "execute_code", code="import matplotlib.pyplot as plt\nplt.plot([1, 2]);")
        assert [block.mime_type for block in drawn.content if block.type == "image"] == ["image/png"]
        listed = (await call(client, "list_runtimes")).structured_content["runtimes"]
        (found,) = (each for each in listed if each["name"] == "wasm-python")
        assert [each.split()[0] for each in found["packages"]][:2] == ["numpy", "pandas"]
        if sys.platform == "linux":
            assert {"seccomp", "no_new_privs"} <= set(found["sandbox"].split(", ")), "its host is behind walls, too"


async def test_a_fitted_model_is_there_after_a_restart(data_dir: Path) -> None:
    for code, value in ((FIT, 2), ("round(m.predict([[10]])[0].item())", 20)):
        async with stdio_client(data_dir, assets_dir=science_assets_dir(), **SET) as client:
            found = await call(client, "execute_code", code=code)
            assert found.structured_content["return_value"] == value, text(found)
            await call(client, "save_state", notebook="python-session")
    assert "Restored from disk" in found.structured_content["notice"]


def test_a_host_makes_nothing_and_says_that_it_lacks_something() -> None:
    assets = science_assets_dir()
    ScienceLanguage.load(assets, print, make=False)
    with TemporaryDirectory(dir=assets) as other:
        folder = Path(other) / "science"
        folder.mkdir(mode=0o700)
        for lacking in ("*.cwasm", "*-library", "*.memory"):
            with pytest.raises(NotReady):
                ScienceLanguage.load(Path(other), print, make=False)
            for each in (assets / "science").glob(lacking):
                if each.is_dir():
                    (folder / each.name).symlink_to(each)
                else:
                    os.link(each, folder / each.name)
        ScienceLanguage.load(Path(other), print, make=False)
