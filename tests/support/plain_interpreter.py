"""A Python interpreter without IPython, as a user's environment may be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

DRAWING = (
    *("matplotlib", "mpl_toolkits", "numpy", "numpy.libs", "PIL", "pillow.libs", "contourpy", "cycler", "kiwisolver"),
    *("pyparsing", "packaging", "dateutil", "six.py", "fontTools"),
)
"""What matplotlib needs, by name in site-packages."""


def make(folder: Path, *packages: str) -> Path:
    """The interpreter of a new environment with these modules of the tests' own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    for name in packages:
        source = Path(sysconfig.get_path("platlib")) / name
        if source.is_dir():
            shutil.copytree(source, site_packages(folder) / name, copy_function=_link)
        elif source.is_file():
            _link(str(source), str(site_packages(folder) / name))
    return folder / "bin" / "python"


def site_packages(folder: Path) -> Path:
    return next(folder.glob("lib/python*/site-packages"))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another disk
        shutil.copy2(source, target)
