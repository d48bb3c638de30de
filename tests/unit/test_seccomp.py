"""The filter of system calls, run by a small interpreter for both processors."""

import errno
import os
import re
import struct
from pathlib import Path

import pytest

from quire.os_sandbox import seccomp

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003
ALLOW, KILL = "allow", "kill"
HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}
# what programs cannot do without, and what was thought about and left allowed
ALLOWED = {
    "x86_64": "read 0 write 1 close 3 mmap 9 mprotect 10 brk 12 rt_sigaction 13 pipe 22 select 23 "
    "sched_yield 24 shmget 29 dup2 33 nanosleep 35 getpid 39 connect 42 bind 49 fork 57 vfork 58 execve 59 kill 62 "
    "semget 64 fcntl 72 symlink 88 chown 92 getrlimit 97 getppid 110 setuid 105 setpgid 109 setgroups 116 "
    "setresuid 117 mlock 149 prctl 157 arch_prctl 158 setrlimit 160 gettid 186 futex 202 sched_setaffinity 203 "
    "epoll_create 213 clock_gettime 228 epoll_wait 232 mbind 237 inotify_init 253 newfstatat 262 "
    "signalfd 282 eventfd 284 prlimit64 302 getrandom 318 seccomp 317 memfd_create 319 execveat 322 membarrier 324 "
    "statx 332 rseq 334 uretprobe 335",
    "aarch64": "eventfd2 19 epoll_create1 20 dup3 24 fcntl 25 inotify_init1 26 mkdirat 34 symlinkat 36 statfs 43 "
    "close 57 pipe2 59 read 63 write 64 signalfd4 74 newfstatat 79 exit_group 94 futex 98 nanosleep 101 "
    "clock_gettime 113 sched_setaffinity 122 kill 129 rt_sigaction 134 setuid 146 setresuid 147 setpgid 154 prctl 167 "
    "getppid 173 gettid 178 connect 203 bind 200 brk 214 munmap 215 execve 221 mmap 222 mprotect 226 mlock 228 "
    "prlimit64 261 seccomp 277 getrandom 278 memfd_create 279 execveat 281 membarrier 283 statx 291 rseq 293",
}
ALLOWED_ON_BOTH = (
    "pidfd_send_signal 424 pidfd_open 434 close_range 436 faccessat2 439 epoll_pwait2 441 "
    "landlock_create_ruleset 444 landlock_add_rule 445 landlock_restrict_self 446 process_mrelease 448 futex_waitv 449 "
    "cachestat 451 map_shadow_stack 453 futex_wake 454 mseal 462 setxattrat 463 file_setattr 469"
)
NEW_NAMESPACES = (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
HIGH = 0xDEAD_BEEF << 32  # what the system does not read must not matter

both = pytest.mark.parametrize("machine", ARCHITECTURES)


@both
def test_denied_calls_are_refused_with_any_arguments(machine: str) -> None:
    for table in seccomp.DENIED.values():
        for name in table:
            if (number := known(table[name], machine)) is not None:
                answers = {run(machine, number, [argument] * 6) for argument in (0, 1, 2**64 - 1)}
                assert (name, answers) == (name, {errno.EPERM})


@both
def test_needed_calls_are_allowed_with_any_arguments(machine: str) -> None:
    words = f"{ALLOWED[machine]} {ALLOWED_ON_BOTH}".split()
    for name, number in zip(words[::2], map(int, words[1::2]), strict=True):
        assert (name, {run(machine, number, [argument] * 6) for argument in (0, 2**64 - 1)}) == (name, {ALLOW})


@both
def test_calls_not_in_the_table_are_allowed(machine: str) -> None:
    named = {known(numbers, machine) for table in tables() for numbers in table.values()}
    assert {number for number in range(470) if run(machine, number) != ALLOW} <= named
    assert {number for number in range(470) if run(machine, number, [2**64 - 1] * 6) != ALLOW} <= named


@both
def test_other_architecture_kills_the_process(machine: str) -> None:
    others = [I386, *(word for name, word in ARCHITECTURES.items() if name != machine), 1]
    assert {run(machine, number, architecture=other) for other in others for number in (0, 1, 59, 435)} == {KILL}


@both
def test_newer_and_x32_calls_do_not_exist(machine: str) -> None:
    x32 = [0x40000000 | number for number in (0, 1, 56, 59, 165, 512, 547)]
    beyond = [470, 471, 512, 547, 1000, 0x7FFFFFFF, 0xFFFFFFFF, *x32]
    assert {number: run(machine, number) for number in beyond} == dict.fromkeys(beyond, errno.ENOSYS)


@both
def test_clone3_and_mount_lists_do_not_exist(machine: str) -> None:
    assert [run(machine, number) for number in (435, 457, 458)] == [errno.ENOSYS] * 3


@both
def test_clone_cannot_create_namespaces(machine: str) -> None:
    thread, fork, vfork, sibling = 0x3D0F00, 0x01200011, 0x4111, 0x8000 | 0x01200011
    pidfd = 0x1000 | 17
    for flags in (thread, fork, vfork, sibling, pidfd, 0):
        assert call(machine, "clone", HIGH | flags) == ALLOW
        for new in NEW_NAMESPACES:
            assert call(machine, "clone", HIGH | flags | new) == errno.EPERM


@both
def test_isolated_process_has_only_threads(machine: str) -> None:
    thread, fork, vfork = 0x3D0F00, 0x01200011, 0x4111
    for name, row in seccomp.ALONE.items():
        if (number := known(row, machine)) is not None:
            answers = {run(machine, number, [argument] * 6, alone=True) for argument in (0, 1, 2**64 - 1)}
            assert (name, answers) == (name, {errno.EPERM})
    clone = known(seccomp.CHECKED["clone"], machine)
    assert clone is not None
    assert run(machine, clone, [HIGH | thread], alone=True) == ALLOW
    for flags in (fork, vfork, 0, *(thread | new for new in NEW_NAMESPACES)):
        assert run(machine, clone, [flags], alone=True) == errno.EPERM
    named = {known(numbers, machine) for table in (*tables(), seccomp.ALONE) for numbers in table.values()}
    assert {number for number in range(470) if run(machine, number, alone=True) != ALLOW} <= named


@both
def test_terminal_input_cannot_be_injected(machine: str) -> None:
    for request in (0x5412, 0x541C, 0x5423):
        assert call(machine, "ioctl", 0, request) == errno.EPERM
        assert call(machine, "ioctl", 0, HIGH | request) == errno.EPERM
    for request in (0x5401, 0x5413, 0x5421, 0x541B, 0x80045430, 0):  # TCGETS, TIOCGWINSZ, FIONBIO, FIONREAD, TIOCGPTN
        assert call(machine, "ioctl", 0x5412, request) == ALLOW


@both
def test_device_files_cannot_be_created(machine: str) -> None:
    for name, before in (("mknod", (0x5412,)), ("mknodat", (0x6000, 0x2000))):
        if known(seccomp.CHECKED[name], machine) is None:
            continue
        for kind in (0o060000, 0o020000):
            assert call(machine, name, *before, HIGH | kind | 0o644) == errno.EPERM
            assert call(machine, name, *before, 0x10000 | kind) == errno.EPERM, "the system reads 16 bits"
        for kind in (0, 0o100000, 0o010000, 0o140000):
            assert call(machine, name, *before, kind | 0o644, 0x6000) == ALLOW


@both
def test_setuid_bits_cannot_be_set(machine: str) -> None:
    fd = -100 & 0xFFFFFFFF
    making, reading = os.O_CREAT | os.O_WRONLY, os.O_RDONLY
    for name, before in (
        *(("chmod", (7,)), ("fchmod", (7,)), ("fchmodat", (fd, 7)), ("fchmodat2", (fd, 7)), ("creat", (7,))),
        *(("open", (7, making)), ("openat", (fd, 7, making)), ("openat", (fd, 7, os.O_TMPFILE | os.O_RDWR))),
    ):
        if known(seccomp.CHECKED[name], machine) is None:
            continue
        assert {call(machine, name, *before, HIGH | mode) for mode in (0o4755, 0o2755, 0o6000)} == {errno.EPERM}
        assert {call(machine, name, *before, mode) for mode in (0, 0o644, 0o777, 0o1777)} == {ALLOW}
    assert call(machine, "openat", fd, 7, reading, 0o4755) == ALLOW, "it makes no file: that argument is not looked at"
    assert call(machine, "mknodat", fd, 7, 0o104755) == errno.EPERM
    assert {seccomp.ABSENT["openat2"][0], seccomp.ABSENT["openat2"][1]} == {437}


@both
def test_only_harmless_personalities_are_allowed(machine: str) -> None:
    assert {call(machine, "personality", each) for each in (0, 8, 0x20000, 0x40000, 0xFFFFFFFF, 2**64 - 1)} == {ALLOW}
    assert {call(machine, "personality", each) for each in (0x400000, 0x100000, 1, 0x440000)} == {errno.EPERM}


@both
def test_allowed_sockets(machine: str) -> None:
    unix, inet, inet6, netlink = 1, 2, 10, 16
    stream, datagram, raw, packets = 1, 2, 3, 5
    for flags in (0, 0x80000, 0x800, 0x80800, HIGH):
        for family in (inet, inet6):
            for kind, protocol in ((stream, 0), (stream, 6), (datagram, 0), (datagram, 17)):
                assert call(machine, "socket", HIGH | family, kind | flags, HIGH | protocol) == ALLOW
            for kind in (raw, packets, 4, 6, 10, 0):
                assert call(machine, "socket", family, kind | flags, 0) == errno.EPERM
        for kind in (stream, datagram, packets):
            assert call(machine, "socket", unix, kind | flags, 0) == ALLOW
        assert call(machine, "socket", unix, raw | flags, 0) == errno.EPERM
        assert call(machine, "socket", netlink, raw | flags, 0) == ALLOW
    for protocol in (1, 132, 136, 262):  # ICMP, SCTP, UDP-Lite, MPTCP
        assert call(machine, "socket", inet, stream, protocol) == errno.EPROTONOSUPPORT
    for protocol in (9, 12, 15, 16):  # audit, netfilter, devices, generic
        assert call(machine, "socket", netlink, raw, protocol) == errno.EPROTONOSUPPORT
    for family in (0, 3, 4, 15, 17, 29, 30, 38, 40, 44):  # PF_KEY, PACKET, CAN, TIPC, ALG, VSOCK, XDP among them
        assert call(machine, "socket", family, stream, 0) == errno.EAFNOSUPPORT
        assert call(machine, "socketpair", family, stream, 0) == errno.EAFNOSUPPORT
    assert call(machine, "socketpair", unix, stream, 0) == ALLOW


@both
def test_filter_and_its_paths_are_short(machine: str) -> None:
    assert len(instructions(machine)) <= 300
    assert max(steps(machine, number) for number in range(470)) <= 20
    assert max(steps(machine, number) for number in range(470) if run(machine, number) == ALLOW) <= 16


@both
def test_allowed_calls_are_decided_by_number_alone(machine: str) -> None:
    """Only then does the system remember it, and run no filter at all."""
    checked = {known(numbers, machine) for numbers in seccomp.CHECKED.values()}
    for number in set(range(470)) - checked:
        assert all(offset in (0, 4) for offset in loads(machine, number)), number


@both
def test_table_agrees_with_the_kernel_headers(machine: str) -> None:
    header = next((Path(path) for path in HEADERS[machine] if Path(path).exists()), None)
    if header is None:
        pytest.skip("the system's headers are not installed")
    text = re.sub(r"__NR3264_", "__NR_", header.read_text())
    right = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", text)}
    ours = {name: numbers for table in (*tables(), seccomp.ALONE) for name, numbers in table.items()}
    wrong = {
        name: (known(numbers, machine), right.get(name))
        for name, numbers in ours.items()
        if known(numbers, machine) != right.get(name)
        and not (name not in right and (known(numbers, machine) or 0) > 450)
    }
    assert wrong == {}
    words = f"{ALLOWED[machine]} {ALLOWED_ON_BOTH}".split()
    listed = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert {name: number for name, number in listed.items() if right.get(name, number) != number} == {}


def test_unknown_processor_has_no_filter() -> None:
    with pytest.raises(KeyError):
        seccomp.program("riscv64")


def test_far_jumps_use_a_long_jump() -> None:
    long = [(0x54, 0, 0, 0xFFFFFFFF)] * 300 + seccomp._ALLOW
    for values in ((1,), (1, 2, 3)):
        block = [(0x20, 0, 0, 0), *seccomp._among(values, long, seccomp._DENY)]
        assert [interpret(block, struct.pack("=I", value) + bytes(60))[0] for value in (*values, 9)] == [
            *[ALLOW] * len(values),
            errno.EPERM,
        ]


def tables() -> list[dict[str, tuple[int | None, int | None]]]:
    return [*seccomp.DENIED.values(), seccomp.ABSENT, seccomp.CHECKED]


def known(numbers: tuple[int | None, int | None], machine: str) -> int | None:
    return numbers[list(ARCHITECTURES).index(machine)]


def call(machine: str, name: str, *arguments: int) -> str | int:
    number = known(seccomp.CHECKED[name], machine)
    assert number is not None
    return run(machine, number, list(arguments))


def run(
    machine: str, number: int, arguments: list[int] | None = None, *, architecture: int = 0, alone: bool = False
) -> str | int:
    return interpret(instructions(machine, alone=alone), data(machine, number, arguments or [], architecture))[0]


def steps(machine: str, number: int) -> int:
    return interpret(instructions(machine), data(machine, number, [], 0))[1]


def loads(machine: str, number: int) -> list[int]:
    return interpret(instructions(machine), data(machine, number, [], 0))[2]


def data(machine: str, number: int, arguments: list[int], architecture: int) -> bytes:
    padded = [*arguments, *[0] * 6][:6]
    return struct.pack("=IIQ6Q", number, architecture or ARCHITECTURES[machine], 0, *padded)


def instructions(machine: str, *, alone: bool = False) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("=HBBI", seccomp.program(machine, alone=alone)))


def interpret(program: list[tuple[int, int, int, int]], data: bytes) -> tuple[str | int, int, list[int]]:
    """What the program answers, after how many instructions, and what it looked at."""
    held, at, steps, looked = 0, 0, 0, []
    while True:
        code, yes, no, constant = program[at]
        at, steps = at + 1, steps + 1
        match code:
            case 0x20:
                looked.append(constant)
                (held,) = struct.unpack_from("=I", data, constant)
            case 0x54:
                held &= constant
            case 0x05:
                at += constant
            case 0x15:
                at += yes if held == constant else no
            case 0x35:
                at += yes if held >= constant else no
            case 0x45:
                at += yes if held & constant else no
            case 0x06:
                return answer(constant), steps, looked
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


def answer(action: int) -> str | int:
    match action & 0xFFFF0000:
        case 0x7FFF0000:
            return ALLOW
        case 0x80000000:
            return KILL
        case 0x00050000:
            return action & 0xFFFF
    raise AssertionError(f"unknown action {action:#x}")
