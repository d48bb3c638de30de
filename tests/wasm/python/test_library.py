"""The standard library: whole, but for what cannot be in WebAssembly, which says so."""

from __future__ import annotations

import contextlib
import io

import pytest

from tests.wasm.python.cells import Notebook

EVERY = """
import importlib, sys, warnings
warnings.simplefilter('ignore')
bad = {}
for name in sorted(sys.stdlib_module_names - {'this', 'antigravity', '__main__', 'idlelib'}):
    try:
        importlib.import_module(name)
    except ImportError as error:
        bad[name] = str(error)
bad
"""
OF_OTHER_SYSTEMS = {"_overlapped", "_scproxy", "_winapi", "_wmi", "msvcrt", "nt", "winreg", "winsound", "_msi", "ntdll"}

PROGRAMS = {
    "close elements": "def f(xs, t):\n    return any(abs(a - b) < t for i, a in enumerate(xs) for b in xs[i + 1:])\nprint(f([1.0, 2.8, 3.0], 0.3), f([1.0, 2.0], 0.5))",
    "paren groups": "def f(s):\n    out, depth, cur = [], 0, ''\n    for c in s.replace(' ', ''):\n        cur += c; depth += 1 if c == '(' else -1\n        if not depth: out.append(cur); cur = ''\n    return out\nprint(f('( ) (( )) (( )( ))'))",
    "sieve": "n = 200\nprint([p for p in range(2, n) if all(p % d for d in range(2, int(p ** .5) + 1))])",
    "fibonacci": "def f(n, memo={}):\n    if n < 2: return n\n    if n not in memo: memo[n] = f(n - 1) + f(n - 2)\n    return memo[n]\nprint(f(90), f(300))",
    "big integers": "import math\nprint(math.factorial(120), 3 ** 500 % 10 ** 40, pow(7, -1, 1009), math.isqrt(10 ** 81))",
    "floats": "print(0.1 + 0.2, 1e16, 1e-7, 1 / 3, float('nan'), -0.0, 1e308 * 10, round(2.675, 2), f'{1234567.891:,.2f}', 5e-324, repr(2 ** .5))",
    "unicode": "import unicodedata\ns = 'Straße ÅÉ ñ 😀 İ'\nprint(s.casefold(), s.upper(), [len(c.encode()) for c in s], unicodedata.normalize('NFD', 'é').encode('unicode_escape'), s[::-1])",
    "dict order": "d = {}\nfor w in 'the quick brown fox jumps over the lazy dog the end'.split(): d[w] = d.get(w, 0) + 1\nprint(d, sorted(d.items(), key=lambda p: (-p[1], p[0])))",
    "dates": "import datetime as d\nx = d.datetime(2024, 2, 29, 12, tzinfo=d.timezone.utc)\nprint(x + d.timedelta(days=366), x.isocalendar(), x.strftime('%A %j %U'), d.date.fromisoformat('2023-12-31').weekday(), d.datetime.strptime('3 Mar 2021', '%d %b %Y'))",
    "decimal": "from decimal import *\ngetcontext().prec = 40\nprint(Decimal(2).sqrt(), Decimal('1.1') + Decimal('2.2'), Decimal(1) / 7, Decimal('2.675').quantize(Decimal('.01'), ROUND_HALF_EVEN))",
    "fractions": "from fractions import Fraction as F\nprint(sum(F(1, n) for n in range(1, 30)), F('0.125'), F(355, 113).limit_denominator(10))",
    "statistics": "import statistics as s\nx = [2, 4, 4, 4, 5, 5, 7, 9]\nprint(s.mean(x), s.median(x), s.pstdev(x), s.stdev(x), s.quantiles(x), s.multimode(x), s.linear_regression(range(8), x))",
    "csv and json": "import csv, io, json\nf = io.StringIO(); w = csv.DictWriter(f, ['a', 'b']); w.writeheader(); w.writerow({'a': 'x,\"y\"', 'b': 1.5})\nprint(repr(f.getvalue()), json.dumps(list(csv.DictReader(io.StringIO(f.getvalue()))), indent=1), json.loads('{\"é\": [1e3, null]}'))",
    "regular expressions": "import re\nprint(re.findall(r'(?P<k>\\w+)=(\\d+)', 'a=1, bb=22;c=x'), re.sub(r'(?<=a)b+', lambda m: str(len(m[0])), 'abbb ab b'), re.split(r'[,;]\\s*', 'a, b;c'))",
    "dataclasses": "from dataclasses import *\n@dataclass(order=True, frozen=True)\nclass P:\n    x: int\n    y: float = 0.5\n    tags: tuple = ()\nprint(sorted([P(2), P(1, 3.0)]), replace(P(1), x=9), asdict(P(3)), hash(P(1)) == hash(P(1)))",
    "itertools": "from itertools import *\nprint(list(permutations('abc', 2)), list(groupby('aabbbc'))[0][0], list(accumulate([3, 1, 4], max)), list(islice(count(3, 2), 4)), [*pairwise('abcd')])",
    "heaps": "import heapq\ng = {'a': {'b': 7, 'c': 3}, 'b': {'d': 2}, 'c': {'b': 1, 'd': 8}, 'd': {}}\ndist, q = {}, [(0, 'a')]\nwhile q:\n    n, v = heapq.heappop(q)\n    if v not in dist:\n        dist[v] = n\n        for w, k in g[v].items(): heapq.heappush(q, (n + k, w))\nprint(dist)",
    "hashes": "import hashlib, zlib, base64, hmac\nprint(hashlib.sha256(b'abc').hexdigest(), hashlib.md5(b'x').hexdigest(), zlib.crc32(b'abc'), base64.b85encode(b'hello'), hmac.new(b'k', b'm', 'sha1').hexdigest(), zlib.decompress(zlib.compress(b'a' * 99))[:3])",
    "match": "def f(x):\n    match x:\n        case [a, *rest] if rest: return ('list', a, len(rest))\n        case {'k': v, **more}: return ('dict', v, more)\n        case int() | float(): return 'number'\n        case _: return 'other'\nprint(*map(f, ([1, 2, 3], {'k': 1, 'z': 2}, 4.5, 'x')))",
    "matrices": "def mul(a, b): return [[sum(x * y for x, y in zip(r, c)) for c in zip(*b)] for r in a]\nm = [[1, 1], [1, 0]]\nr = m\nfor _ in range(30): r = mul(r, m)\nprint(r)",
    "seeded random": "import random\nr = random.Random(42)\nprint(r.random(), r.randint(1, 100), r.sample(range(50), 5), r.gauss(0, 1), r.choices('abc', k=4))",
    "strings": "s = 'hello world'\nprint(s.title(), s.center(21, '*'), s.partition(' '), '{:>8}|{:<6}|{:^7}|{:+.3e}'.format('a', 'b', 'c', 12345.678), s.translate(str.maketrans('lo', '01')), 'a\\tb'.expandtabs(4))",
    "generators": "def tree(n):\n    if n:\n        yield from tree(n - 1)\n        got = yield n\n        if got: yield got\ng = tree(3)\nprint(next(g), g.send('x'), list(g))",
    "classes": "class M(type):\n    def __new__(m, n, b, d, **k): return super().__new__(m, n, b, {**d, 'made': n.lower()}, **k)\nclass A(metaclass=M):\n    def __init_subclass__(cls, **k): cls.k = k\nclass B(A, x=1): __slots__ = ('q',)\nprint(A.made, B.made, B.k, [c.__name__ for c in B.__mro__])",
    "xml and html": "import xml.etree.ElementTree as E, html\nt = E.fromstring('<a><b x=\"1\">t</b><b/></a>')\nprint([b.attrib for b in t.iter('b')], E.tostring(t), html.escape('<&\">'), html.unescape('&eacute;&#39;'))",
}


def test_every_module_is_there_or_says_why_not(notebook: Notebook) -> None:
    absent = notebook.run(EVERY).value
    silent = {name: why for name, why in absent.items() if "WebAssembly" not in why and not name.startswith("_")}
    assert silent.keys() <= OF_OTHER_SYSTEMS, silent
    for name in (
        "json",
        "asyncio",
        "sqlite3",
        "email",
        "unittest",
        "xml",
        "tomllib",
        "zoneinfo",
        "http",
        "pydoc",
        "doctest",
    ):
        assert name not in absent


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=list(PROGRAMS))
def test_programs_give_the_same_answers_as_on_an_operating_system(notebook: Notebook, code: str) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "<here>", "exec"), {"__name__": "__main__"})
    ran = notebook.run(code)
    assert ran.finished.outcome == "success", ran.raised
    assert ran.text == said.getvalue()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import ctypes", "no other machine's libraries"),
        ("import ssl", "no network"),
        ("import socket; socket.create_connection(('example.org', 80))", "no network"),
        ("import urllib.request; urllib.request.urlopen('http://example.org')", "no network"),
        ("import subprocess; subprocess.run(['ls'])", "does not support processes"),
        ("import os; os.system('ls')", "no processes"),
        ("import multiprocessing; multiprocessing.Process(target=print).start()", "no processes"),
        ("import multiprocessing; multiprocessing.Pool()", "no processes"),
        ("import threading; threading.Thread(target=print).start()", "no threads"),
        ("from concurrent.futures import ThreadPoolExecutor; ThreadPoolExecutor().submit(print)", "no threads"),
        ("import fcntl", "no operating system"),
        ("import tkinter", "no terminal"),
    ],
)
def test_what_cannot_be_says_so(notebook: Notebook, code: str, why: str) -> None:
    assert why in notebook.run(code).raised


def test_the_librarys_source_can_be_read(notebook: Notebook) -> None:
    assert "def dumps" in notebook.run("import inspect, json\ninspect.getsource(json)[:20_000]").value
