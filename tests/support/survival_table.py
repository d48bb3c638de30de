"""The tables in docs/survival.md: what survives a run, a crash or rollback, and a restart, with a check for each row.

The second table lists the kinds of objects in tests/support/object_kinds.py.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from tests.support.object_kinds import KINDS


@dataclass(frozen=True, kw_only=True)
class Row:
    what: str
    setup: str  # a cell
    check: str  # an expression, true where it survived
    restored: str = "yes"  # or why not: then `check` is false, or raises, after a restore
    restarted: str = "yes"  # or why not: then `check` is false, or raises, after a restart
    says: str = ""  # in what it raises then
    needs: str = ""  # a module without which the row cannot be tried
    during: str = ""  # what the cell that crashes does first

    @property
    def survives(self) -> bool:
        return self.restored == "yes"

    @property
    def survives_restart(self) -> bool:
        return self.restarted == "yes"


ROWS = (
    Row(
        what="variables, and which share an object",
        setup="x = [1]; y = x",
        check="y is x and x == [1]",
        during="x.append(2); del y",
    ),
    Row(
        what="objects shared with a module of the workspace; a NaN in a list",
        setup="open('mine.py', 'w').write('S = {}'); import mine; from mine import S; S['a'] = 1\n"
        "n = float('nan'); held = [n]",
        check="mine.S is S and S == {'a': 1} and n in held and float('nan') not in held",
        during="S.clear(); held.clear()",
    ),
    Row(
        what="functions, classes, closures, lambdas",
        setup="class A:\n    n = 1\ndef f(a=A()):\n    return lambda: a.n\ng = f()",
        check="g() == 1 and f()() == 1",
        during="A.n = 2",
    ),
    Row(what="generators not started", setup="g = (n for n in range(9))", check="next(g) == 0"),
    Row(
        what="generators, half consumed",
        setup="g = (n for n in range(9)); next(g)",
        check="next(g) == 1",
        restarted="no: a tombstone",
        says="GoneError: g was a suspended generator; generators cannot be saved. Run cell 0 again.",
    ),
    Row(
        what="locks, weak references, modules",
        setup="import threading, weakref, json\nclass B: pass\nb = B(); r = weakref.ref(b); l = threading.Lock()",
        check="l.acquire(timeout=1) and l.release() is None and r() is b and json.dumps([]) == '[]'",
    ),
    Row(
        what="the current folder, environment variables",
        setup="import os; os.mkdir('sub'); os.chdir('sub'); os.environ['A'] = '1'",
        check="os.getcwd().endswith('/sub') and os.environ['A'] == '1'",
        during="os.chdir('/'); os.environ['A'] = '2'",
    ),
    Row(
        what="random state of `random` and numpy",
        setup="import random, numpy as np; random.seed(5); np.random.seed(5)",
        check="(random.random(), np.random.rand()) == (random.Random(5).random(), np.random.RandomState(5).rand())",
        during="random.random(); np.random.rand()",
        needs="numpy",
    ),
    Row(
        what="decimal contexts, context variables, thread-local values",
        setup="import decimal, contextvars, threading\n"
        "decimal.getcontext().prec = 7; v = contextvars.ContextVar('v'); v.set(1); t = threading.local(); t.x = 2",
        check="(decimal.getcontext().prec, v.get(), t.x) == (7, 1, 2)",
    ),
    Row(
        what="gc settings, umask, csv dialects, default socket timeout",
        setup="import gc, os, csv, socket; gc.disable(); os.umask(0o027); csv.register_dialect('d', delimiter='|')\n"
        "socket.setdefaulttimeout(0.05)",
        check="(gc.isenabled(), csv.get_dialect('d').delimiter, socket.getdefaulttimeout(), os.umask(0o027)) "
        "== (False, '|', 0.05, 0o027)",
        during="import time; time.sleep(0.2); gc.enable(); os.umask(0); csv.unregister_dialect('d')",
    ),
    Row(
        what="settings of threads, tracemalloc, faulthandler and mimetypes, log level names, soft limits",
        setup="import decimal, faulthandler, logging, mimetypes, resource, sys, threading, tracemalloc\n"
        "sys.setswitchinterval(0.25); threading.stack_size(1 << 20); logging.addLevelName(15, 'TRACE')\n"
        "mimetypes.add_type('text/x-mine', '.mine'); decimal.DefaultContext.prec = 9\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (400, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "tracemalloc.start(3); faulthandler.enable()",
        check="[sys.getswitchinterval(), threading.stack_size(), logging.getLevelName(15), "
        "mimetypes.guess_type('a.mine')[0], decimal.DefaultContext.prec, "
        "resource.getrlimit(resource.RLIMIT_NOFILE)[0], tracemalloc.get_traceback_limit(), faulthandler.is_enabled()] "
        "== [0.25, 1 << 20, 'TRACE', 'text/x-mine', 9, 400, 3, True]",
        during="tracemalloc.stop(); faulthandler.disable(); sys.setswitchinterval(0.5)",
    ),
    Row(
        what="hooks for errors and warnings, logger handlers, functions put into builtins",
        setup="import builtins, logging, sys, warnings\n"
        "sys.excepthook = warnings.showwarning = builtins.helper = lambda *given: None\n"
        "logging.getLogger('mine').addHandler(logging.StreamHandler())",
        check="(sys.excepthook is warnings.showwarning is builtins.helper, len(logging.getLogger('mine').handlers)) "
        "== (True, 1)",
        restarted="no: named",
        says="False",
    ),
    Row(
        what="signal handlers, sqlite3 adapters and converters",
        setup="import signal, sqlite3; signal.signal(signal.SIGUSR2, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGUSR1, lambda *given: None); sqlite3.register_converter('c', bytes)",
        check="(callable(signal.getsignal(signal.SIGUSR1)), 'C' in sqlite3.converters) == (True, True) "
        "and signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN",
        restarted="no: named, except ignored signals",
        says="False",
    ),
    Row(
        what="open files and their position",
        setup="import os; f = open('f', 'w+'); f.write('abc'); f.flush(); os.mkdir('o'); os.chdir('o')",
        check="f.tell() == 3 and f.write('d') == 1 and f.seek(0) == 0 and f.read() == 'abcd'",
        during="f.seek(1)",
    ),
    Row(
        what="file contents",
        setup="open('g', 'w').write('before')",
        check="open('g').read() == 'before'",
        during="open('g', 'w').write('after')",
        restored="no: files stay as the cell left them",
    ),
    Row(
        what="sqlite connections",
        setup="import sqlite3; d = sqlite3.connect('a.db'); d.execute('create table t (x)')\n"
        "d.execute('insert into t values (1)'); d.commit()",
        check="d.execute('select x from t').fetchall() == [(1,)]",
    ),
    Row(
        what="idle thread pools",
        setup="from concurrent.futures import ThreadPoolExecutor; p = ThreadPoolExecutor(2); list(p.map(abs, [-1]))",
        check="list(p.map(abs, [-1, -2])) == [1, 2]",
    ),
    Row(
        what="idle process pools (`fork`)",
        setup="import multiprocessing as mp; from concurrent.futures import ProcessPoolExecutor\n"
        "c = mp.get_context('fork'); p = ProcessPoolExecutor(1, mp_context=c); q = c.Pool(1)\n"
        "list(p.map(abs, [-1])), q.map(abs, [-1])",
        check="list(p.map(abs, [-1, -2])) == [1, 2] == q.map(abs, [-1, -2])",
    ),
    Row(
        what="the asyncio loop and its pending tasks",
        setup="import asyncio; p = asyncio.get_event_loop().create_task(asyncio.sleep(0.01, 'done')) "
        "if await asyncio.sleep(0) is None else None",
        check="await p == 'done' and await asyncio.to_thread(abs, -1) == 1",
        restarted="the loop; a task is a tombstone",
        says="GoneError: p was a task",
    ),
    Row(
        what="threads",
        setup="import threading, time; t = threading.Thread(target=time.sleep, args=(1000,), daemon=True); t.start()",
        check="t.is_alive()",
        restored="no: listed in the census",
        restarted="no: a tombstone",
        says="GoneError: t was thread",
    ),
    Row(
        what="child processes",
        setup="import subprocess; p = subprocess.Popen(['sleep', '1000'])",
        check="p.poll() is None",
        restored="no: ended with the kernel, listed in the census",
        restarted="no: a tombstone",
        says="GoneError: p was a subprocess",
    ),
    Row(
        what="sockets",
        setup="import socket; s = socket.create_server(('127.0.0.1', 0))",
        check="bool(socket.create_connection(s.getsockname(), timeout=1))",
        restored="no: closed; using one raises OSError",
        restarted="no: a tombstone",
        says="GoneError: s was a socket",
    ),
    Row(
        what="pipes",
        setup="import os; r, w = os.pipe(); os.write(w, b'x')",
        check="os.read(r, 1) == b'x' and os.write(w, b'x') == 1",
        restored="no: closed; reading gives nothing",
        restarted="no: the descriptors are invalid",
        says="OSError",
    ),
    Row(
        what="matplotlib figures",
        setup="import matplotlib.figure; f = matplotlib.figure.Figure(); a = f.add_subplot(); a.plot([1, 2])",
        check="len(a.lines) == 1 and f.savefig('f.png') is None",
        needs="matplotlib",
    ),
    Row(
        what="numpy and its BLAS threads",
        setup="import numpy as np; m = np.ones((600, 600)); (m @ m).sum()",
        check="(m @ m).sum() == 600.0**3",
        needs="numpy",
    ),
    Row(
        what="scikit-learn (OpenMP)",
        setup="import numpy as np; from sklearn.cluster import KMeans\n"
        "d = np.random.RandomState(0).rand(4000, 8); k = KMeans(8, n_init=1, random_state=0).fit(d)",
        check="k.predict(d).shape == (4000,) and KMeans(8, n_init=1, random_state=0).fit(d).inertia_ == k.inertia_",
        needs="sklearn",
    ),
    Row(
        what="torch on the CPU",
        setup="import torch; m = torch.ones(500, 500); m.matmul(m).sum()",
        check="m.matmul(m).sum().item() == 500.0**3",
        needs="torch",
    ),
    Row(
        what="polars",
        setup="import polars as pl; d = pl.DataFrame({'a': list(range(100000))}); d.group_by(pl.col('a') % 7).len()",
        check="d.group_by(pl.col('a') % 7).len().height == 7",
        restored="no: hangs until the timeout; the census says `hostile`",
        needs="polars",
    ),
)


def table() -> str:
    """The first table in docs/survival.md."""
    rows = [f"| {row.what} | yes | {row.restored} | {row.restarted} |" for row in ROWS]
    return "\n".join(["| what | a run | a crash or a rollback | a restart |", "| --- | --- | --- | --- |", *rows])


def count() -> str:
    """How many kinds of objects are restored, as in docs/SPECIFICATION.md."""
    return f"{sum(kind.expected == 'kept' for kind in KINDS)} of {len(KINDS)}"


def kinds() -> str:
    """Which kinds of objects are restored after a restart and which are not: the second table in docs/survival.md."""
    kept = [re.sub("^(an?|the) ", "", _shown(kind.name)) for kind in KINDS if kind.expected == "kept"]
    gone = [f"| {_shown(kind.name)} | {_shown(kind.why)} |" for kind in KINDS if kind.expected != "kept"]
    return "\n".join(
        [
            f"{len(kept)} of {len(KINDS)} tested kinds are restored. {len(gone)} are not:",
            "",
            "| what | the tombstone says, among others |",
            "| --- | --- |",
            *gone,
            "",
            "These are restored:",
            "",
            textwrap.fill("; ".join(kept) + ".", 120, break_long_words=False, break_on_hyphens=False),
        ]
    )


def _shown(name: str) -> str:
    """Quote names with double underscores, which Markdown would show as bold."""
    return re.sub(r"__\w+__", r"`\g<0>`", name)
