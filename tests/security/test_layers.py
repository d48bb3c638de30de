"""Each layer alone: what it stops, and what it leaves working, for root and for an ordinary user.

All calls have arguments that change nothing on the machine even where no layer stops them.
"""

import os
import platform
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.os_sandbox import landlock, seccomp
from tests.support.external_programs import missing
from tests.support.security.children import WHO, own_folder, run, start
from tests.support.security.working import PROGRAMS, SCIENCE, WORKING


@pytest.fixture(params=WHO)
def who(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(who: str) -> Iterator[Path]:
    with own_folder(who) as made:
        yield made


@pytest.fixture
def filters() -> None:
    if reason := seccomp.unavailable_reason():
        missing("seccomp", reason)


@pytest.fixture
def locks() -> int:
    if not (abi := landlock.abi()):
        missing("landlock", "this system has none")
    return abi


# ---- seccomp ----


@pytest.mark.usefixtures("filters")
def test_every_denied_call_is_refused_by_the_system(who: str, folder: Path) -> None:
    """Nothing is mapped at address 1, no descriptor or flag is right, and there is no terminal to hang up."""
    body = """
column = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
answer = {
    name: tried(libc.syscall, numbers[column], 1, 1, 1, 1, 1, 1)
    for table in seccomp.DENIED.values() for name, numbers in table.items() if numbers[column] is not None
}
"""
    answer = run(who, body, folder, filtered=True)
    assert len(answer) > 50
    assert {name: error for name, error in answer.items() if error != "EPERM"} == {}


@pytest.mark.usefixtures("filters")
def test_no_namespace_no_device_no_raw_socket_no_typing_for_others(who: str, folder: Path) -> None:
    body = """
import fcntl, socket
number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
def clone(flags):
    if libc.syscall(number, flags | 17, 0, 0, 0, 0) == 0:
        os._exit(0)
def personality(which):
    libc.syscall({"x86_64": 135, "aarch64": 92}[os.uname().machine], which)
answer = {
    "new user": tried(clone, 0x10000000),
    "new network": tried(clone, 0x40000000),
    "clone3": tried(libc.syscall, 435, 1, 1),
    "newer": tried(libc.syscall, 1000),
    "x32": tried(libc.syscall, 0x40000000 | 39),
    "character device": tried(os.mknod, "device", 0o020644, 0),
    "raw": tried(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1),
    "packet": tried(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0),
    "crypto": tried(socket.socket, socket.AF_ALG, socket.SOCK_SEQPACKET, 0),
    "netfilter": tried(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 12),
    "pair": tried(socket.socketpair, socket.AF_INET),
    "typing": tried(fcntl.ioctl, 1, 0x5412, b"x"),
    "readable is executable": tried(personality, 0x400000),
    "asked": tried(personality, 0xFFFFFFFF),
}
"""
    assert run(who, body, folder, filtered=True) == {
        "new user": "EPERM",
        "new network": "EPERM",
        "clone3": "ENOSYS",
        "newer": "ENOSYS",
        "x32": "ENOSYS",
        "character device": "EPERM",
        "raw": "EPERM",
        "packet": "EAFNOSUPPORT",
        "crypto": "EAFNOSUPPORT",
        "netfilter": "EPROTONOSUPPORT",
        "pair": "EAFNOSUPPORT",
        "typing": "EPERM",
        "readable is executable": "EPERM",
        "asked": "done",
    }


@pytest.mark.usefixtures("filters")
def test_the_filter_holds_in_threads_that_run_already_and_in_programs(who: str, folder: Path) -> None:
    body = """
import subprocess
begin, found = threading.Event(), []
thread = threading.Thread(target=lambda: (begin.wait(), found.append(tried(libc.syscall, 435, 1, 1))))
thread.start()
privileges.no_new_privs()
seccomp.install(seccomp.program(os.uname().machine))
begin.set()
thread.join()
status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
answer = [found, "Seccomp:\\t2" in status]
"""
    assert run(who, body, folder) == [["ENOSYS"], True]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the other way in is x86's")
@pytest.mark.usefixtures("filters")
def test_calling_the_system_as_32_bits_kills_the_process(who: str, folder: Path) -> None:
    body = """
import mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")  # eax = getpid; int 0x80; return
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
"""
    assert start(who, body, folder, filtered=True).returncode == -signal.SIGSYS


@pytest.mark.usefixtures("filters")
def test_without_no_new_privs_an_ordinary_user_gets_no_layer(locks: int) -> None:
    body = f"""
answer = [tried(seccomp.install, seccomp.program(os.uname().machine)), tried(landlock.restrict, [], [], {locks})]
"""
    with own_folder("user") as folder:
        assert run("user", body, folder) == ["EACCES", "EPERM"]


@pytest.mark.usefixtures("filters")
def test_a_broken_filter_is_an_error(who: str, folder: Path) -> None:
    body = "privileges.no_new_privs()\nanswer = [tried(seccomp.install, program) for program in (b'', bytes(8))]"
    assert run(who, body, folder) == ["EINVAL", "EINVAL"]


@pytest.mark.parametrize("what", WORKING)
@pytest.mark.usefixtures("filters")
def test_under_the_filter_it_works(what: str, who: str, folder: Path) -> None:
    assert run(who, WORKING[what], folder, filtered=True) is True


@pytest.mark.parametrize("what", SCIENCE)
@pytest.mark.usefixtures("filters", "science")
def test_under_the_filter_science_works(what: str, who: str, folder: Path) -> None:
    assert run(who, SCIENCE[what], folder, filtered=True) is True


@pytest.mark.parametrize("what", PROGRAMS)
@pytest.mark.usefixtures("filters")
def test_under_the_filter_programs_work(what: str, who: str, folder: Path) -> None:
    if shutil.which(what) is None:
        pytest.skip(f"{what} is not installed")
    body = f"import subprocess\nanswer = subprocess.run({PROGRAMS[what]!r}, shell=True).returncode"
    assert run(who, body, folder, filtered=True) == 0


# ---- Landlock ----

SYSTEM = [
    "/usr",
    "/bin",
    "/lib",
    "/lib64",
    "/etc",
    "/proc",
    sys.prefix,
    sys.base_prefix,
    str(Path(__file__).parents[2]),
]
LOCKED = """
import pathlib
inside, outside = pathlib.Path("inside").absolute(), pathlib.Path("outside").absolute()
for each in (inside, outside):
    (each / "deeper").mkdir(parents=True)
    (each / "file").write_text("words")
(inside / "link").symlink_to(outside / "file")
(inside / "up").symlink_to("../outside")
privileges.no_new_privs()
landlock.restrict({system} + {readable}, [str(inside), "/dev/null", "/nowhere"], {abi}, {more})
def opened(path, flags=os.O_RDONLY):
    os.close(os.open(path, flags, 0o644))
"""


def locked(body: str, *, abi: int, readable: str = "[]", more: str = "") -> str:
    return LOCKED.format(system=SYSTEM, abi=abi, readable=readable, more=more) + body


def test_only_given_folders_are_reached_with_every_abi(who: str, folder: Path, locks: int) -> None:
    body = """
answer = {
    "read": tried(opened, outside / "file"),
    "list": tried(os.listdir, outside),
    "by a link": tried(opened, inside / "link"),
    "by a linked folder": tried(opened, inside / "up" / "file"),
    "by dots": tried(opened, inside / ".." / "outside" / "file"),
    "by proc": tried(opened, f"/proc/self/cwd/outside/file"),
    "write": tried(opened, outside / "file", os.O_WRONLY),
    "make": tried(opened, outside / "new", os.O_WRONLY | os.O_CREAT),
    "make a folder": tried(os.mkdir, outside / "new"),
    "remove": tried(os.remove, outside / "file"),
    "make a device": tried(os.mknod, inside / "device", 0o020644, 0),
    "write what is readable": tried(opened, "/etc/passwd", os.O_WRONLY),
    "read inside": tried(opened, inside / "file"),
    "write inside": tried(opened, inside / "new", os.O_WRONLY | os.O_CREAT),
    "nothing": tried(opened, "/dev/null", os.O_RDWR),
    "start": tried(os.posix_spawn, "/bin/true", ["true"], {}),
}
for call in (os.mkfifo, os.mkdir, lambda path: path.symlink_to("x")):
    path = inside / "made"
    answer[f"make {len(answer)}"] = tried(call, path)
    answer[f"remove {len(answer)}"] = tried(os.rmdir if path.is_dir() and not path.is_symlink() else os.remove, path)
"""
    for abi in range(1, locks + 1):
        with own_folder(who) as fresh:
            answer = run(who, locked(body, abi=abi), fresh)
        refused = [name for name, error in answer.items() if error == "EACCES"]
        assert refused == list(answer)[:12], (abi, answer)
        assert {error for name, error in answer.items() if name not in refused} == {"done"}, (abi, answer)


def test_what_an_abi_adds(who: str, folder: Path, locks: int) -> None:
    body = """
answer = [
    tried(os.rename, inside / "file", inside / "deeper" / "file"),
    tried(os.rename, inside / "link", outside / "link"),
    tried(os.truncate, outside / "file", 1),
    tried(os.kill, os.getppid(), 0),
]
if not (pid := os.fork()):
    os._exit(len(os.read(0, 1)))
answer.append(tried(os.kill, pid, 0))
"""
    for abi in range(1, locks + 1):
        with own_folder(who) as fresh:
            moved, carried_out, truncated, signalled, own = run(who, locked(body, abi=abi), fresh)
        assert moved == ("EXDEV" if abi < 2 else "done")
        assert carried_out in ("EXDEV", "EACCES")
        assert truncated == ("EACCES" if abi >= 3 else "done")
        if abi >= 6:
            assert signalled == "EPERM"
        assert own == "done"


def test_single_files_can_be_given_and_signals_left_free(who: str, folder: Path, locks: int) -> None:
    body = """
answer = [
    tried(opened, outside / "file"), tried(os.listdir, outside), tried(opened, outside / "file", os.O_WRONLY),
    tried(os.kill, os.getpid(), 0), tried(os.killpg, 0, 0),
]
"""
    code = locked(body, abi=locks, readable="[str(outside / 'file')]", more="signals=False")
    assert run(who, code, folder) == ["done", "EACCES", "EACCES", "done", "done"]


def test_abstract_sockets_outside_are_out_of_reach(who: str, folder: Path, locks: int) -> None:
    if locks < 6:
        pytest.skip("this system's Landlock has no scopes")
    with socket.socket(socket.AF_UNIX) as server:
        name = f"\0quire-{os.getpid()}-{folder.name}"
        server.bind(name)
        server.listen()
        body = f"""
import socket
answer = [tried(socket.socket(socket.AF_UNIX).connect, {name!r})]
own = socket.socket(socket.AF_UNIX)
own.bind({name + "-own"!r})
own.listen()
answer.append(tried(socket.socket(socket.AF_UNIX).connect, {name + "-own"!r}))
"""
        assert run(who, locked(body, abi=locks), folder) == ["EPERM", "done"]


def test_tcp_connects_to_given_ports_only_and_only_when_told(who: str, folder: Path, locks: int) -> None:
    body = """
import socket
answer = [
    tried(socket.socket().connect, ("127.0.0.1", PORT)),
    tried(socket.socket().connect, ("127.0.0.1", OTHER)),
    tried(socket.socket().bind, ("127.0.0.1", 0)),
]
"""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        port, other = one.getsockname()[1], two.getsockname()[1]
        body = body.replace("PORT", str(port)).replace("OTHER", str(other))
        expected = {
            "": ["done", "done", "done"],
            "ports=[]": ["EACCES", "EACCES", "EACCES"],
            f"ports=[{port}]": ["done", "EACCES", "EACCES"],
        }
        for more, answer in expected.items():
            with own_folder(who) as fresh:
                assert run(who, locked(body, abi=locks, more=more), fresh) == answer
    too_old = "try: landlock.restrict([], [], 3, ports=[])\nexcept OSError as failed: answer = str(failed)"
    assert "ABI 4" in run(who, too_old, folder)


def test_programs_and_threads_started_later_are_locked_in_too(who: str, folder: Path, locks: int) -> None:
    body = """
import subprocess
answer = [subprocess.run(["cat", str(outside / "file")], stderr=subprocess.DEVNULL).returncode]
thread = threading.Thread(target=lambda: answer.append(tried(opened, outside / "file")))
thread.start()
thread.join()
"""
    assert run(who, locked(body, abi=locks), folder) == [1, "EACCES"]


# ---- privileges ----


def test_dropped_capabilities_do_not_come_back_with_a_program(who: str, folder: Path) -> None:
    body = """
import subprocess
privileges.drop_capabilities()
privileges.no_new_privs()
def held(text):
    return {words[0]: words[1] for line in text.splitlines() if (words := line.split())[0][:3] in ("Cap", "NoN")}
answer = [held(open("/proc/self/status").read()),
    held(subprocess.run(["/bin/cat", "/proc/self/status"], capture_output=True, text=True).stdout)]
answer += [tried(os.chroot, "/nowhere"), tried(os.setuid, 0) if os.getuid() else "EPERM", tried(os.setgroups, [])]
"""
    *statuses, chroot, setuid, setgroups = run(who, body, folder)
    for status in statuses:
        assert status["NoNewPrivs:"] == "1"
        empty = ("CapInh:", "CapPrm:", "CapEff:", "CapAmb:", *(("CapBnd:",) if who == "root" else ()))
        assert {int(status[name], 16) for name in empty} == {0}
    assert chroot in ("EPERM", "ENOENT")
    assert [setuid, setgroups] == ["EPERM", "EPERM"]


def test_what_is_not_dumpable_is_closed_to_processes_of_its_user(who: str, folder: Path) -> None:
    body = """
def seen():
    if not (pid := os.fork()):
        os._exit(tried(open, f"/proc/{os.getppid()}/environ") != "done")
    return os.waitpid(pid, 0)[1] == 0
privileges.drop_capabilities()
answer = [seen()]
privileges.set_dumpable(False)
answer.append(seen())
privileges.set_dumpable(True)
answer.append(seen())
"""
    assert run(who, body, folder) == [True, False, True]
