"""The program behind `pip` in cells: the environment's own pip, or uv without one.

The interpreter's own folder may be read-only. Then a folder of the notebook is a virtual environment on top of the
interpreter's: pip changes only that folder, and sees what is installed below it. This program imports nothing of
Quire.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import site
import subprocess
import sys
import sysconfig

_CHANGING_COMMANDS = ("install", "uninstall", "download", "wheel", "sync")
_UV_COMMANDS = ("install", "uninstall", "list", "show", "freeze", "check", "tree")
_TARGET_OPTIONS = ("--target", "-t", "--prefix", "--root")
_PTH_NAME = "quire-environment.pth"


def main(folder: str, failures: str, program: str, arguments: list[str]) -> int:
    """Run pip or uv and return its exit code. A failed change is recorded in the file `failures`, since the shell
    may ignore the code."""
    if program == "uv":
        code = _run([shutil.which("uv") or "uv", *arguments])
        subcommand = _subcommand(arguments[1:]) if arguments[:1] == ["pip"] else ""
    else:
        code = _pip(folder, arguments)
        subcommand = _subcommand(arguments)
    if code and subcommand in _CHANGING_COMMANDS:
        with open(failures, "a", encoding="utf-8") as file:
            file.write(f"{program} {' '.join(arguments)[:200]} ended with code {code}.\n")
    return code


def _subcommand(arguments: list[str]) -> str:
    return next((word for word in arguments if not word.startswith("-")), "")


def _pip(folder: str, arguments: list[str]) -> int:
    subcommand = _subcommand(arguments)
    has_target = any(word.partition("=")[0] in _TARGET_OPTIONS for word in arguments)
    has_pip = importlib.util.find_spec("pip") is not None
    if folder and subcommand == "install" and not has_target:
        arguments = [word for word in arguments if word != "--user"]  # virtual environments have no user folder
        if not has_pip and _is_satisfied(arguments):
            return 0
        try:
            _create_venv(folder)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"The folder {folder} for packages could not be created: {error}", file=sys.stderr)
            return 1
    python = _python(folder) if folder and os.path.exists(_python(folder)) else sys.executable
    uv = _uv()
    if has_pip:
        return _run([python, "-P", "-m", "pip", *arguments])
    if uv and subcommand in _UV_COMMANDS and arguments[0] == subcommand:
        return _run([uv, "pip", *arguments, "--python", python])
    if pip_path := shutil.which("pip"):
        return _run([pip_path, *arguments])
    print("There is no pip here; of uv there are pip " + ", ".join(_UV_COMMANDS) + ".", file=sys.stderr)
    return 1


def _uv() -> str | None:
    return os.environ.get("UV") or shutil.which("uv")


def _is_satisfied(arguments: list[str]) -> bool:
    """Whether uv would change nothing. With a virtual environment on top, uv would not see the packages below it."""
    uv = _uv()
    if not uv:
        return False
    command = [uv, "pip", *arguments, "--dry-run", "--python", sys.executable]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    satisfied = finished.returncode == 0 and "Would make no changes" in finished.stderr
    if satisfied:
        sys.stderr.write(finished.stderr)
    return satisfied


def _python(folder: str) -> str:
    return os.path.join(folder, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")


def _create_venv(folder: str) -> None:
    """Create a virtual environment whose modules come before the interpreter's."""
    if not os.path.exists(_python(folder)):
        shutil.rmtree(os.path.join(folder, "bin"), ignore_errors=True)  # links to an interpreter that no longer exists
        command = [sys.executable, "-P", "-m", "venv", "--without-pip", folder]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    site_folders = [folder, *site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    modules = sysconfig.get_path("purelib", "venv", {"base": folder, "platbase": folder})
    with open(os.path.join(modules, _PTH_NAME), "w", encoding="utf-8") as file:
        file.writelines(f"import site; site.addsitedir({path!r})\n" for path in site_folders)


def _run(command: list[str]) -> int:
    environment = dict(os.environ)
    configured = os.path.join(sys.prefix, "pip.conf")  # of the environment below
    if os.path.exists(configured):
        environment.setdefault("PIP_CONFIG_FILE", configured)
    try:
        code = subprocess.run(command, env=environment, check=False).returncode
    except FileNotFoundError:
        print(f"{command[0]}: not found", file=sys.stderr)
        return 127
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
