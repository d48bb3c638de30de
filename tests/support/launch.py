"""Usage: python -I -S launch.py ADDRESS -m quire [ARGUMENT...] | -c PROGRAM
Stands for a server that the process at ADDRESS forks, see preloaded.py. It imports little, since it starts often."""

import os
import signal
import socket
import sys

server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, lambda number, frame: server.send(bytes([number])))
start = repr((os.getcwd(), dict(os.environ), sys.argv[2:])).encode()
socket.send_fds(server, [len(start).to_bytes(4)], [0, 1, 2])
server.sendall(start)
os.closerange(0, 2)  # the server's alone: who reads them sees when it has closed them
status = server.recv(4)
code = int.from_bytes(status, signed=True) if status else -signal.SIGKILL
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), -code)
os._exit(code)
