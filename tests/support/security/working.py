"""What must go on working under the filter: small programs, each true in `answer` if it did."""

_WORKING = """
--- threads
from concurrent.futures import *
answer = list(ThreadPoolExecutor(4).map(abs, range(9))) == [*range(9)]
--- fork
pid = os.fork()
if not pid: os._exit(7)
answer = os.waitpid(pid, 0)[1] == 7 << 8
--- subprocess
import subprocess as s
answer = s.run('ulimit -n 64; echo $(ulimit -n) | cat', shell=True, capture_output=True).stdout == b'64\\n'
--- posix_spawn
answer = os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1] == 0
--- vfork
import subprocess as s
answer = s.run(['/bin/true'], close_fds=False).returncode == 0
--- fork pool
import multiprocessing as m
with m.get_context('fork').Pool(2) as pool: answer = pool.map(abs, [-1]) == [1]
--- spawn pool
import multiprocessing as m
with m.get_context('spawn').Pool(2) as pool: answer = pool.map(abs, [-1]) == [1]
--- semaphores
import multiprocessing as m
answer = m.Semaphore(1).acquire() and m.Lock().acquire()
--- shared memory
from multiprocessing.shared_memory import *
memory = SharedMemory(create=True, size=99)
memory.buf[0] = 1
memory.close()
memory.unlink()
answer = True
--- manager
import multiprocessing as m
with m.Manager() as manager: answer = list(manager.list([1])) == [1]
--- asyncio
import asyncio
async def main():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    await (await asyncio.open_connection(*server.sockets[0].getsockname()))[0].read()
    process = await asyncio.create_subprocess_exec("echo", "hi", stdout=-1)
    return (await process.communicate())[0], await asyncio.to_thread(abs, -1)
answer = asyncio.run(main()) == (b"hi\\n", 1)
--- sockets
import socket as s
kinds = [(s.AF_UNIX, 1), (s.AF_UNIX, 2), (s.AF_UNIX, 5), (s.AF_INET, 1), (s.AF_INET, 2)]
[s.socket(*each) for each in kinds]
s.socketpair()
answer = True
--- interfaces
import socket
answer = 'lo' in dict(map(reversed, socket.if_nameindex()))
--- memfd
fd = os.memfd_create('x')
answer = os.write(fd, b'x') == 1
--- pidfd
import signal as s
fd = os.pidfd_open(os.getpid())
s.pidfd_send_signal(fd, 0)
answer = True
--- signalfd
answer = ctypes.CDLL(None).signalfd(-1, bytes(128), 0) > 0
--- eventfd
fd = os.eventfd(0)
os.eventfd_write(fd, 3)
answer = os.eventfd_read(fd) == 3
--- epoll
import select
answer = select.epoll().poll(0) == []
--- inotify
c = ctypes.CDLL(None)
answer = c.inotify_add_watch(c.inotify_init(), b'.', 2) > 0
--- landlock
answer = not landlock.abi() or tried(landlock.restrict, ['/'], [], landlock.abi()) == 'done'
--- affinity
os.sched_setaffinity(0, os.sched_getaffinity(0))
answer = True
--- mlock
room = ctypes.create_string_buffer(4096)
answer = ctypes.CDLL(None).mlock(room, 4096) == 0
--- terminal
import pty, termios
left, right = pty.openpty()
termios.tcgetattr(right)
answer = os.isatty(right)
--- fifo
os.mkfifo('fifo')
os.mknod('file')
answer = sorted(os.listdir()) == ['fifo', 'file']
--- profiler
import cProfile
cProfile.Profile().runcall(abs, -1)
answer = True
--- timer
import signal as s
s.signal(s.SIGPROF, s.SIG_IGN)
s.setitimer(s.ITIMER_PROF, 1)
answer = True
--- sqlite
import sqlite3
answer = sqlite3.connect('x.db').execute('pragma journal_mode=wal').fetchone() == ('wal',)
--- same user
os.setuid(os.getuid())
os.setgid(os.getgid())
answer = True
"""
_SCIENCE = """
--- numpy
import numpy
answer = float((numpy.ones((400, 400)) @ numpy.ones((400, 400))).sum()) == 400.0**3
--- pandas
import pandas
pandas.DataFrame({'a': [1, 2]}).to_csv('x.csv')
answer = int(pandas.read_csv('x.csv').a.sum()) == 3
--- matplotlib
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.savefig('x.png')
answer = os.path.getsize('x.png') > 999
"""


def _named(text: str) -> dict[str, str]:
    parts = (part.partition("\n") for part in text.split("--- ")[1:])
    return {name: code for name, _, code in parts}


WORKING = _named(_WORKING)
SCIENCE = _named(_SCIENCE)
PROGRAMS = {
    "git": "git init -q . && git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m x && git log --oneline",
    "gcc": "printf 'int main(){return 0;}' > a.c && gcc a.c -o a && ./a",
    "node": 'node -e \'require("fs").promises.readFile("/proc/version").then(t => process.exit(t.length ? 0 : 1))\'',
}
