"""The program that `pip` is in a cell: the environment's own pip, or uv's where it has none.

With a folder it installs there, in place of what is there of the same packages: the interpreter's own is read-only.
It imports nothing of ours.
"""

from __future__ import annotations

import csv
import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

_CHANGES = ("install", "uninstall", "download", "wheel")
_OF_UV = ("install", "uninstall", "list", "show", "freeze", "check", "tree")
_PLACES = ("--target", "-t", "--prefix", "--root")


def main(folder: str, failures: str, arguments: list[str]) -> int:
    """The exit code. A change that failed is noted in the file `failures`, whatever the shell makes of the code."""
    subcommand = next((word for word in arguments if not word.startswith("-")), "")
    if folder and subcommand == "install" and not any(word.partition("=")[0] in _PLACES for word in arguments):
        code = _install(folder, [word for word in arguments if word != "--user"])
    elif folder and subcommand == "uninstall":
        code = _uninstall(folder, arguments)
    else:
        code = _run(arguments, folder)
    if code and subcommand in _CHANGES:
        with open(failures, "a", encoding="utf-8") as file:
            file.write(f"pip {' '.join(arguments)[:200]} ended with code {code}.\n")
    return code


def _run(arguments: list[str], folder: str) -> int:
    own = importlib.util.find_spec("pip") is not None
    uv = os.environ.get("UV") or shutil.which("uv")
    if own:
        command = [sys.executable, "-P", "-m", "pip", *arguments]
    elif uv and arguments[:1] and arguments[0] in _OF_UV:
        command = [uv, "pip", *arguments, "--python", sys.executable]
    elif found := shutil.which("pip"):
        command = [found, *arguments]
    else:
        print("There is no pip here; of uv there are pip " + ", ".join(_OF_UV) + ".", file=sys.stderr)
        return 1
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path} if path else None  # so that pip sees what is installed there
    code = subprocess.run(command, env=environment, check=False).returncode
    return 128 - code if code < 0 else code


def _install(folder: str, arguments: list[str]) -> int:
    if importlib.util.find_spec("pip") is None:  # uv replaces what is there
        return _run([*arguments, "--target", folder], folder)
    os.makedirs(folder, exist_ok=True)
    fresh = tempfile.mkdtemp(prefix=".new-", dir=folder)
    try:
        code = _run([*arguments, "--target", fresh], folder)
        if code == 0:
            for info in glob.glob(os.path.join(glob.escape(fresh), "*.dist-info")):
                _remove(folder, _project(info))
            shutil.copytree(fresh, folder, symlinks=True, dirs_exist_ok=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return code


def _uninstall(folder: str, arguments: list[str]) -> int:
    """Pip removes nothing outside its own environment, and the folder is outside."""
    left = []
    for word in arguments:
        if word.startswith("-") or word == "uninstall" or not _remove(folder, _normalized(word)):
            left.append(word)
        else:
            print(f"Removed {word} from {folder}.", flush=True)
    names = [word for word in left if not word.startswith("-") and word != "uninstall"]
    return _run(left, folder) if names or left == arguments else 0


def _project(info: str) -> str:
    return _normalized(os.path.basename(info).rpartition(".")[0].partition("-")[0])


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _remove(folder: str, project: str) -> bool:
    """Delete the files of an installed package, those that lie in the folder. False where it is not there."""
    found = False
    for info in glob.glob(os.path.join(glob.escape(folder), "*.dist-info")):
        if _project(info) != project:
            continue
        found = True
        try:
            with open(os.path.join(info, "RECORD"), encoding="utf-8", newline="") as file:
                paths = [os.path.normpath(os.path.join(folder, row[0])) for row in csv.reader(file) if row]
        except (OSError, ValueError):
            paths = []
        for path in paths:
            if path.startswith(folder + os.sep) and os.path.isfile(path):
                os.remove(path)
        shutil.rmtree(info, ignore_errors=True)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
