"""Give a process its own root: the system and the interpreter read-only, the workspace and mounts, and nothing else."""

from __future__ import annotations

import os
import site
import stat
import sys
from dataclasses import dataclass

from quire.worker.sandbox import system

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys/devices/system/cpu")
ETC = (  # files that programs need; no user names, no keys
    *("alternatives", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "magic", "matplotlibrc", "mime.types"),
    *("host.conf", "hosts", "nsswitch.conf", "protocols", "resolv.conf", "services"),
    *("ca-certificates", "pki", "ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem"),
    *("debian_version", "locale.alias", "localtime", "os-release", "profile", "terminfo", "timezone"),
)
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
_STAGING = "/tmp"  # the new root is built here, which hides the old content
_MOUNT_FLAGS = system.NOSUID | system.NODEV
# show only processes that may be traced: /proc/1/mountinfo of the supervisor names all mounts of the machine
_OWN_PROCESSES = "hidepid=4"


@dataclass(frozen=True)
class Tree:
    """A folder or file that is visible under its own path."""

    path: str
    writable: bool = False
    mount: int = -1  # descriptor of a mount made by the zygote, or -1


@dataclass(frozen=True)
class Root:
    granted: list[Tree]  # the workspace and mounts
    home: str
    private_bytes: int  # limit for each of /tmp, /dev/shm and the home folder; 0 is no limit


def interpreter_paths() -> list[str]:
    """Paths of this Python and of what it can import."""
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path, *site.getsitepackages()]
    paths += [os.path.abspath(os.path.join(__file__, "../../.."))]  # the worker's own program
    paths += filter(None, [os.environ.get("UV")])
    paths = [path for path in paths if path and path != "/" and os.path.exists(path)]
    paths += [real for path in paths if (real := os.path.realpath(path)) != path]
    trees = {path: Tree(path) for path in (*SYSTEM, *paths)}
    return [path for path in _outermost(trees) if path not in SYSTEM]


def enter(root: Root) -> None:
    """Enter the new root. Raises OSError."""
    system.unshare(system.NEWNS)
    trees = _copies(root)
    options = "mode=755,size=16m"
    system.mount("quire", _STAGING, "tmpfs", _MOUNT_FLAGS, options)
    os.chdir(_STAGING)
    for path, target in links().items():
        os.symlink(target, _STAGING + path)
    mounts = [*trees, *((path, -1) for path in ("/proc", "/dev/pts", *_private(root)))]
    for path, tree in sorted(mounts, key=lambda place: place[0]):
        _mount(path, tree, root.private_bytes)
    _write_system_files(root)
    system.pivot_root(".", ".")
    system.unmount(".")
    os.chdir("/")
    system.mount("none", "/", None, system.REMOUNT | system.BIND | system.READ_ONLY | _MOUNT_FLAGS)


def _private(root: Root) -> list[str]:
    """Temporary folders, unless another folder was granted under the same path."""
    granted = {tree.path for tree in root.granted}
    return [path for path in ("/tmp", "/dev/shm", root.home) if path != "/" and path not in granted]


def _copies(root: Root) -> list[tuple[str, int]]:
    """Copies of all visible mounts, taken before the staging folder hides some of them."""
    linked = links()
    trees = {path: Tree(path) for path in (*SYSTEM, *(f"/etc/{name}" for name in ETC)) if path not in linked}
    trees |= {tree.path: tree for tree in root.granted}
    copies = []
    for path in sorted(_outermost(trees)):
        tree = trees[path]
        if tree.mount >= 0 or os.path.exists(path):
            copies.append((path, tree.mount if tree.mount >= 0 else _copy(path, read_only=not tree.writable)))
    for name in _DEVICES:
        copies.append((f"/dev/{name}", system.open_tree(f"/dev/{name}")))
    return copies


def _outermost(trees: dict[str, Tree]) -> list[str]:
    """Leave out paths inside others with the same access."""

    def inside(path: str) -> bool:
        above = path
        while (above := os.path.dirname(above)) != "/":
            if above in trees:
                return not trees[path].writable and not trees[above].writable
        return False

    return [path for path in trees if path != "/" and not inside(path)]


def _copy(path: str, *, read_only: bool) -> int:
    tree = system.open_tree(path)
    system.set_attributes(tree, read_only=read_only)
    return tree


def links() -> dict[str, str]:
    """Links such as /bin, which lead into /usr."""
    return {path: os.readlink(path) for path in SYSTEM if os.path.islink(path)}


def _mount(path: str, tree: int, max_bytes: int) -> None:
    target = _STAGING + path
    if tree >= 0 and not stat.S_ISDIR(os.fstat(tree).st_mode):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "a").close()
    else:
        os.makedirs(target, exist_ok=True)
    if tree >= 0:
        system.attach(tree, target)
        os.close(tree)
    elif path == "/proc":
        system.mount("proc", target, "proc", _MOUNT_FLAGS | system.NOEXEC, _OWN_PROCESSES)
    elif path == "/dev/pts":
        system.mount("devpts", target, "devpts", system.NOSUID | system.NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    else:
        size = f",size={max_bytes}" if max_bytes else ""
        mode = "700" if path not in ("/tmp", "/dev/shm") else "1777"
        system.mount("quire", target, "tmpfs", _MOUNT_FLAGS, f"mode={mode}{size}")


def _write_system_files(root: Root) -> None:
    """Write the entries of /etc and /dev that programs look for."""
    for name, target in _LINKS.items():
        os.symlink(target, f"{_STAGING}/dev/{name}")
    os.makedirs(f"{_STAGING}/etc", exist_ok=True)
    uid, gid = os.getuid(), os.getgid()
    _write("passwd", f"quire:x:{uid}:{gid}:quire:{root.home}:/bin/sh\n")
    _write("group", f"quire:x:{gid}:\n")


def _write(name: str, text: str) -> None:
    with open(f"{_STAGING}/etc/{name}", "w") as file:
        file.write(text)
