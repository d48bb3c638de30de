"""The seccomp filter for kernels: a table of system calls for two processors, compiled to BPF.

Everything is allowed except what the tables name. The filter is a binary search over the numbers. For calls that are
always allowed it looks at the number only, so Linux caches the result.

setuid and similar calls are allowed: without capabilities and with `no_new_privs` they give nothing.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import socket
import stat
import struct
import sys

from quire.os_sandbox import libc

_NEWEST = 469  # file_setattr of Linux 6.17; newer calls are answered with ENOSYS
_MACHINES = {"x86_64": (0xC000003E, 0, 317), "aarch64": (0xC00000B7, 1, 277)}  # AUDIT_ARCH, column, seccomp's number

# Always refused, by reason. Numbers on x86-64 and aarch64; None where the call does not exist.
DENIED: dict[str, dict[str, tuple[int | None, int | None]]] = {
    "namespaces and the tree of mounts": {
        "unshare": (272, 97),
        "setns": (308, 268),
        "chroot": (161, 51),
        "pivot_root": (155, 41),
        "mount": (165, 40),
        "umount2": (166, 39),
        "open_tree": (428, 428),
        "move_mount": (429, 429),
        "fsopen": (430, 430),
        "fsconfig": (431, 431),
        "fsmount": (432, 432),
        "fspick": (433, 433),
        "mount_setattr": (442, 442),
        "open_tree_attr": (467, 467),
    },
    "memory and files of other processes": {
        "ptrace": (101, 117),
        "process_vm_readv": (310, 270),
        "process_vm_writev": (311, 271),
        "process_madvise": (440, 440),
        "pidfd_getfd": (438, 438),
        "kcmp": (312, 272),
        "move_pages": (279, 239),
        "migrate_pages": (256, 238),
    },
    "large parts of the system's kernel that cells do without": {
        "bpf": (321, 280),
        "perf_event_open": (298, 241),
        "userfaultfd": (323, 282),
        "io_uring_setup": (425, 425),
        "io_uring_enter": (426, 426),
        "io_uring_register": (427, 427),
        "add_key": (248, 217),
        "request_key": (249, 218),
        "keyctl": (250, 219),
        "fanotify_init": (300, 262),
        "fanotify_mark": (301, 263),
        "lsm_set_self_attr": (460, 460),
        "modify_ldt": (154, None),
    },
    "files found without their path": {
        "name_to_handle_at": (303, 264),
        "open_by_handle_at": (304, 265),
        "lookup_dcookie": (212, 18),
    },
    "the machine as a whole": {
        "reboot": (169, 142),
        "kexec_load": (246, 104),
        "kexec_file_load": (320, 294),
        "create_module": (174, None),
        "init_module": (175, 105),
        "finit_module": (313, 273),
        "delete_module": (176, 106),
        "get_kernel_syms": (177, None),
        "query_module": (178, None),
        "swapon": (167, 224),
        "swapoff": (168, 225),
        "acct": (163, 89),
        "quotactl": (179, 60),
        "quotactl_fd": (443, 443),
        "syslog": (103, 116),
        "settimeofday": (164, 170),
        "clock_settime": (227, 112),
        "clock_adjtime": (305, 266),
        "adjtimex": (159, 171),
        "sethostname": (170, 161),
        "setdomainname": (171, 162),
        "vhangup": (153, 58),
        "iopl": (172, None),
        "ioperm": (173, None),
    },
    "left from old systems": {
        "nfsservctl": (180, 42),
        "uselib": (134, None),
        "ustat": (136, None),
        "sysfs": (139, None),
        "_sysctl": (156, None),
    },
}
# Answered with ENOSYS, so that programs use the older call, whose arguments the filter can check.
ABSENT: dict[str, tuple[int | None, int | None]] = {
    "openat2": (437, 437),  # its arguments are in memory, which a filter cannot read
    "clone3": (435, 435),
    "statmount": (457, 457),
    "listmount": (458, 458),
}
# Decided by their arguments, see `_by_arguments`.
CHECKED: dict[str, tuple[int | None, int | None]] = {
    "clone": (56, 220),
    "ioctl": (16, 29),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "personality": (135, 92),
    "socket": (41, 198),
    "socketpair": (53, 199),
    # no setuid bit: outside the sandbox the file's owner is the server's user
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "creat": (85, None),
    "open": (2, None),
    "openat": (257, 56),
}

# Also refused to an isolated process: it starts no programs, sends no signals, has no sockets.
ALONE: dict[str, tuple[int | None, int | None]] = {
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}

_THREAD = 0x00010000  # CLONE_THREAD
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET
_PUSHING_INPUT = (0x5412, 0x541C, 0x5423)  # TIOCSTI and TIOCLINUX insert input into a terminal; TIOCSETD loads code
_PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF)  # Linux, 32 bits, 2.6 version, no randomization; query
_NETLINK_ROUTE = 0
_SET_ID = stat.S_ISUID | stat.S_ISGID
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "open": 2, "openat": 3}  # argument
_MAKES_FILE = os.O_CREAT | 0o20000000  # __O_TMPFILE, without the bit for folders

_SET_SECCOMP, _MODE_FILTER = 22, 2  # of prctl
_SET_MODE_FILTER, _ALL_THREADS = 1, 1  # of seccomp

_Instruction = tuple[int, int, int, int]  # code, jump offsets if true and if false, constant
_Block = list[_Instruction]  # ends with a return, and jumps only within itself
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_GO, _EQUAL, _AT_LEAST, _ANY_BIT = 0x05, 0x15, 0x35, 0x45
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in seccomp_data
_FARTHEST = 255

_ALLOW: _Block = [(_RETURN, 0, 0, 0x7FFF0000)]
_KILL: _Block = [(_RETURN, 0, 0, 0x80000000)]  # the whole process


def _refuse(number: int) -> _Block:
    return [(_RETURN, 0, 0, 0x00050000 | number)]


_DENY, _UNKNOWN = _refuse(errno.EPERM), _refuse(errno.ENOSYS)


@functools.cache
def program(machine: str, *, internet: bool = True, alone: bool = False) -> bytes:
    """The filter for a processor as BPF. Raises KeyError for an unknown processor.

    Without `internet` there are no internet sockets, for a process that shares the machine's network. With `alone`
    there are no sockets at all, and only threads can be started.

    A call with another architecture's numbers (32 bits) kills the process. The numbers of x32 are beyond the newest
    and do not exist.
    """
    architecture, column, _ = _MACHINES[machine]
    block = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        *_if(_EQUAL, architecture, [(_LOAD, 0, 0, _NUMBER), *_search(_ranges(column, internet, alone))], _KILL),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in block)


def unavailable_reason() -> str:
    """ "" if `install` can work, or why not."""
    machine = platform.machine()
    if sys.platform != "linux":
        return "seccomp is a part of Linux"
    if machine not in _MACHINES or sys.maxsize < 1 << 32:
        return f"there is no table of system calls for {machine} of this Python's word size"
    try:
        libc.prctl(_SET_SECCOMP, _MODE_FILTER, 0)
    except OSError as failed:
        if failed.errno != errno.EFAULT:  # a system with filters reads the program at address 0 and fails
            return f"this system has no seccomp filters ({failed.strerror})"
    return ""


def install(program: bytes) -> None:
    """Apply the filter to all threads of this process and all programs it starts. Needs `no_new_privs`."""
    instructions = ctypes.create_string_buffer(program, len(program))
    filter_ = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions)))
    _, _, number = _MACHINES[platform.machine()]
    try:
        thread = libc.syscall(number, _SET_MODE_FILTER, _ALL_THREADS, filter_)
    except OSError as failed:
        if failed.errno not in (errno.ENOSYS, errno.EINVAL):
            raise
        _install_on_one(filter_)
        return
    if thread:
        raise OSError(errno.ESRCH, f"Thread {thread} is under another filter; install before threads start.")


def _install_on_one(filter_: ctypes.Array[ctypes.c_char]) -> None:
    if len(os.listdir("/proc/self/task")) > 1:
        raise OSError(errno.ENOSYS, "This system filters one thread at a time; install before threads start.")
    libc.prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(filter_))


def _ranges(column: int, internet: bool, alone: bool) -> list[tuple[int, _Block]]:
    """The action from each number on, up to the next one listed."""
    blocks = {_NEWEST + 1: _UNKNOWN}
    tables = (*((table, _DENY) for table in DENIED.values()), (ABSENT, _UNKNOWN))
    for table, block in tables:
        blocks |= {number: block for numbers in table.values() if (number := numbers[column]) is not None}
    checked = {**{name: _by_arguments(name) for name in CHECKED}, "socket": _socket(internet)}
    if alone:
        threads = _if(_ANY_BIT, _THREAD, _if(_ANY_BIT, _NEW_NAMESPACES, _DENY, _ALLOW), _DENY)
        checked |= {"clone": [_argument(0), *threads], **dict.fromkeys(ALONE, _DENY)}
    rows = {**CHECKED, **(ALONE if alone else {})}
    blocks |= {number: checked[name] for name, row in rows.items() if (number := row[column]) is not None}
    starts: list[tuple[int, _Block]] = [(0, blocks.get(0, _ALLOW))]
    for number in range(1, _NEWEST + 2):
        if (block := blocks.get(number, _ALLOW)) is not starts[-1][1]:
            starts.append((number, block))
    return starts


def _search(ranges: list[tuple[int, _Block]]) -> _Block:
    if len(ranges) == 1:
        return ranges[0][1]
    half = len(ranges) // 2
    return _if(_AT_LEAST, ranges[half][0], _search(ranges[half:]), _search(ranges[:half]))


def _by_arguments(name: str) -> _Block:
    match name:
        case "clone":  # the checked arguments have 32 bits
            return [_argument(0), *_if(_ANY_BIT, _NEW_NAMESPACES, _DENY, _ALLOW)]
        case "ioctl":
            return [_argument(1), *_among(_PUSHING_INPUT, _DENY, _ALLOW)]
        case "mknod" | "mknodat":
            mode = _argument(1 if name == "mknod" else 2)
            device = [(_AND, 0, 0, 0xF000), *_among((stat.S_IFBLK, stat.S_IFCHR), _DENY, _ALLOW)]
            return [mode, *_if(_ANY_BIT, _SET_ID, _DENY, device)]
        case "open" | "openat":
            made = [_argument(_MODES[name]), *_if(_ANY_BIT, _SET_ID, _DENY, _ALLOW)]
            return [_argument(_MODES[name] - 1), *_if(_ANY_BIT, _MAKES_FILE, made, _ALLOW)]
        case _ if name in _MODES:
            return [_argument(_MODES[name]), *_if(_ANY_BIT, _SET_ID, _DENY, _ALLOW)]
        case "personality":
            return [_argument(0), *_among(_PERSONALITIES, _ALLOW, _DENY)]
        case "socketpair":
            return [_argument(0), *_among((socket.AF_UNIX,), _ALLOW, _refuse(errno.EAFNOSUPPORT))]
        case _:
            return _socket(internet=True)


def _socket(internet: bool) -> _Block:
    """Allow TCP, UDP, Unix sockets, and netlink for listing network interfaces."""
    kind = [_argument(1), (_AND, 0, 0, 0xFFFFFFFF & ~(socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK))]
    plain = (socket.SOCK_STREAM, socket.SOCK_DGRAM)
    wrong_protocol, wrong_family = _refuse(errno.EPROTONOSUPPORT), _refuse(errno.EAFNOSUPPORT)
    local = [*kind, *_among((*plain, socket.SOCK_SEQPACKET), _ALLOW, _DENY)]
    protocol = [_argument(2), *_among((0, socket.IPPROTO_TCP, socket.IPPROTO_UDP), _ALLOW, wrong_protocol)]
    world = [*kind, *_among(plain, protocol, _DENY)] if internet else _DENY
    interfaces = [_argument(2), *_among((_NETLINK_ROUTE,), _ALLOW, wrong_protocol)]
    others = _among((socket.AF_NETLINK,), interfaces, wrong_family)
    families = _among((socket.AF_INET, socket.AF_INET6), world, others)
    return [_argument(0), *_among((socket.AF_UNIX,), local, families)]


def _argument(place: int) -> _Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * place)


def _if(test: int, constant: int, yes: _Block, no: _Block) -> _Block:
    if len(yes) <= _FARTHEST:
        return [(test, 0, len(yes), constant), *yes, *no]
    return [(test, 1, 0, constant), (_GO, 0, 0, len(yes)), *yes, *no]


def _among(values: tuple[int, ...], yes: _Block, no: _Block) -> _Block:
    """Test for a few values, one after the other."""
    *others, last = values
    decided = _if(_EQUAL, last, yes, no)
    past = len(decided) - len(yes) - len(no) - 1  # 1 if the last test needs a second instruction
    tests = [(_EQUAL, len(others) - at + past, 0, value) for at, value in enumerate(others)]
    return [*tests, *decided]
