"""Attacks that a cell tries: the code, the sandbox layer that stops it, and the error it gets."""

from __future__ import annotations

FILES = {  # what is tried, with the wall and what it says
    "read a file of the machine": ("mount", "open({secret!r})", "ENOENT"),
    "read the passwords": ("mount", "open('/etc/shadow')", "ENOENT"),
    "read ssh keys": ("mount", "os.listdir(os.path.expanduser('~/.ssh'))", "ENOENT"),
    "read the server's data": ("mount", "open({data!r} + '/quire.db')", "ENOENT"),
    "read another notebook's folder": ("mount", "os.listdir({other!r})", "ENOENT"),
    "read through a symbolic link": ("mount", "os.symlink({secret!r}, 'way') or open('way')", "ENOENT"),
    "read the system's log of itself": ("mount", "os.listdir('/sys/kernel')", "ENOENT"),
    "read the disk": ("mount", "os.listdir('/dev/disk')", "ENOENT"),
    "write into the system": ("mount", "open('/usr/bin/new', 'w')", "EROFS"),
    "write into the root": ("mount", "os.mkdir('/new')", "EROFS"),
    "change the interpreter": ("mount", "os.utime(os.__file__)", "EROFS"),
    "make the system writable again": ("seccomp", "system(number(165, 40), b'none', b'/usr', None, 33, None)", "EPERM"),
}
NETWORK = {
    "TCP to the world": ("net", "connect(socket.AF_INET, socket.SOCK_STREAM, ('192.0.2.1', 80))", "ENETUNREACH"),
    "UDP to the world": ("net", "connect(socket.AF_INET, socket.SOCK_DGRAM, ('192.0.2.1', 53))", "ENETUNREACH"),
    "IPv6 to the world": ("net", "connect(socket.AF_INET6, socket.SOCK_STREAM, ('2001:db8::1', 80))", "ENETUNREACH"),
    "the machine's loopback": (
        "net",
        "connect(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', {port}))",
        "ECONNREFUSED",
    ),
    "a unix socket among files": ("mount", "connect(socket.AF_UNIX, socket.SOCK_STREAM, {path!r})", "ENOENT"),
    "a unix socket without a file": (
        "net",
        "connect(socket.AF_UNIX, socket.SOCK_STREAM, '\\0' + {name!r})",
        "ECONNREFUSED",
    ),
    "a raw socket": ("seccomp", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", "EPERM"),
    "a packet socket": ("seccomp", "socket.socket(17, socket.SOCK_RAW, 768)", "EAFNOSUPPORT"),
}
PROCESSES = {
    "kill the server": ("pid", "os.kill({server}, 9)", "ESRCH"),
    "read the server's environment": ("pid", "open('/proc/{server}/environ')", "ENOENT"),
    "read the server's memory": ("pid", "open('/proc/{server}/mem', 'rb')", "ENOENT"),
    "read the supervisor's memory": ("mount", "open('/proc/1/mem', 'rb')", "ENOENT"),
    "read the supervisor's environment": ("mount", "open('/proc/1/environ', 'rb').read()", "ENOENT"),
    "read the machine's mounts": ("mount", "open('/proc/1/mountinfo')", "ENOENT"),
    "read the machine's mounts of a thread": ("mount", "open('/proc/1/task/1/mountinfo')", "ENOENT"),
    "trace the supervisor": ("seccomp", "system(number(101, 117), 16, 1, 0, 0)", "EPERM"),
    "read a process's memory": ("seccomp", "system(number(310, 270), 1, None, 0, None, 0, 0)", "EPERM"),
    "take a process's descriptors": ("seccomp", "system(438, os.pidfd_open(1), 0, 0)", "EPERM"),
    "the machine's shared memory": ("ipc", "system(number(29, 194), {shared}, 0, 0)", "ENOENT"),
}
SYSTEM = {
    "mount": ("seccomp", "system(number(165, 40), b'none', b'/tmp', b'tmpfs', 0, None)", "EPERM"),
    "mount in the new way": ("seccomp", "system(430, b'tmpfs', 0)", "EPERM"),
    "unmount": ("seccomp", "system(number(166, 39), b'/proc', 2)", "EPERM"),
    "a user namespace": ("seccomp", "system(number(272, 97), 0x10000000)", "EPERM"),
    "a mount namespace": ("seccomp", "system(number(272, 97), 0x00020000)", "EPERM"),
    "clone3": ("seccomp", "system(435, None, 0)", "ENOSYS"),
    "a namespace by clone": ("seccomp", "system(number(56, 220), 0x10000011, 0, 0, 0, 0)", "EPERM"),
    "join a namespace": ("seccomp", "system(number(308, 268), 0, 0)", "EPERM"),
    "change the root": ("seccomp", "os.chroot('/tmp')", "EPERM"),
    "be another user": ("uid", "os.setuid(4321)", "EINVAL"),
    "give a file away": ("uid", "open('mine', 'w').close() or os.chown('mine', 4321, 4321)", "EINVAL"),
    "make a device": ("seccomp", "os.mknod('disk', 0o060600, os.makedev(8, 0))", "EPERM"),
    "bpf": ("seccomp", "system(number(321, 280), 0, None, 0)", "EPERM"),
    "io_uring": ("seccomp", "system(425, 1, None)", "EPERM"),
    "keys": ("seccomp", "system(number(250, 219), 0, -3, 0)", "EPERM"),
    "performance counters": ("seccomp", "system(number(298, 241), None, 0, -1, -1, 0)", "EPERM"),
    "user faults": ("seccomp", "system(number(323, 282), 0)", "EPERM"),
    "load a module": ("seccomp", "system(number(313, 273), -1, b'', 0)", "EPERM"),
    "set the clock": ("seccomp", "__import__('time').clock_settime(0, 0)", "EPERM"),
    "name the machine": ("seccomp", "socket.sethostname('mine')", "EPERM"),
    "open by handle": ("seccomp", "system(number(304, 265), -100, None, 0)", "EPERM"),
    "type into the terminal": ("seccomp", "__import__('fcntl').ioctl(os.openpty()[1], 0x5412, b'x')", "EPERM"),
    "raise a limit": ("rlimits", "__import__('resource').setrlimit(4, (9, 9))", "not allowed to raise maximum limit"),
}
ATTACKS = {**FILES, **NETWORK, **PROCESSES, **SYSTEM}
