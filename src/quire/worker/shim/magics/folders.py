"""Where commands run and what they inherit: folders and the environment."""

from __future__ import annotations

import functools
import os
from typing import Any

from quire.worker.shim.errors import UsageError
from quire.worker.shim.registry import OURS, line

_COMMANDS = {
    "cat": "cat",
    "cp": "cp",
    "ldir": "ls -F -o | grep /$",
    "less": "cat",
    "lf": "ls -F -o | grep ^-",
    "lk": "ls -F -o | grep ^l",
    "ll": "ls -F -o",
    "ls": "ls -F",
    "lx": "ls -F -o | grep ^-..x",
    "man": "man",
    "mkdir": "mkdir",
    "more": "cat",
    "mv": "mv",
    "rm": "rm",
    "rmdir": "rmdir",
}
_pushed: list[str] = []


def _visited(shell: Any) -> list[str]:
    folders = shell.user_ns.setdefault("_dh", [])
    if not folders:
        folders.append(os.getcwd())
    return folders  # type: ignore[no-any-return]  # a cell may put anything there; then it fails


@line("cd")
def cd(shell: Any, line: str) -> None:
    """Go to a folder; `-` is the one before, nothing is home, `-q` says nothing."""
    words = line.strip()
    quiet = words == "-q" or words.startswith("-q ")
    target = words.removeprefix("-q").strip().strip("'\"") if quiet else words.strip("'\"")
    folders = _visited(shell)
    if target == "-":
        if len(folders) < 2:
            raise UsageError("%cd -: there is no folder before this one.")
        target = folders[-2]
    try:
        os.chdir(os.path.expanduser(target or "~"))
    except OSError as error:
        print(error)
    else:
        folders.append(os.getcwd())
    if not quiet:
        print(os.getcwd())


@line("pwd")
def pwd(shell: Any, line: str) -> str:
    """The folder commands run in."""
    return os.getcwd()


@line("pushd")
def pushd(shell: Any, line: str) -> list[str]:
    """Go to a folder and remember this one."""
    _pushed.insert(0, os.getcwd().replace(os.path.expanduser("~"), "~", 1))
    cd(shell, line)
    return list(_pushed)


@line("popd")
def popd(shell: Any, line: str) -> None:
    """Back to the folder `%pushd` was in."""
    if not _pushed:
        raise UsageError("%popd: no folder was pushed.")
    target = _pushed.pop(0)
    cd(shell, target)
    print(f"popd -> {target}")


@line("dirs")
def dirs(shell: Any, line: str) -> list[str]:
    """The folders that were pushed."""
    return list(_pushed)


@line("dhist")
def dhist(shell: Any, line: str) -> None:
    """The folders this notebook was in."""
    print("Directory history (kept in _dh)")
    for number, folder in enumerate(_visited(shell)):
        print(f"{number}: {folder}")


@line("env")
def env(shell: Any, line: str) -> Any:
    """The environment; one variable of it; or `NAME=value` to set one."""
    text = line.strip()
    if not text:
        return dict(os.environ)
    if "=" in text or " " in text:
        set_env(shell, text)
        return None
    if text not in os.environ:
        raise UsageError(f"The environment has no variable {text}.")
    return os.environ[text]


@line("set_env")
def set_env(shell: Any, line: str) -> None:
    """Set a variable of the environment: `NAME=value` or `NAME value`."""
    mark = "=" if "=" in line else " "
    name, _, value = line.strip().partition(mark)
    name, value = name.strip(), value.strip()
    if not name or not value or any(each.isspace() for each in name):
        raise UsageError("%set_env NAME=value sets a variable of the environment.")
    os.environ[name] = value
    print(f"env: {name}={value}")


def _command(command: str, shell: Any, line: str) -> None:
    head, pipe, tail = command.partition(" |")
    shell.system(f"{head} {line}{pipe}{tail}")


for _name, _text in _COMMANDS.items():
    _function: Any = functools.partial(_command, _text)
    _function.__doc__ = f"The command {_text}."
    _function.__name__ = _name
    OURS["line"][_name] = _function
