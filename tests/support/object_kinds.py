"""The kinds of object notebooks hold: the cell that makes each, and what must hold of it in a new process.

`it` is the object in question. A kind that is kept comes back right; any other is a tombstone that says why.
"""

# ruff: noqa: E501 - a table: a cell to a line
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Kind:
    name: str
    make: str  # a cell
    check: str = ""  # asserts, run where it was loaded
    why: str = ""  # for what is not kept: a few words of the reason
    needs: str = ""  # a library

    @property
    def expected(self) -> str:
        return "tombstone" if self.why else "kept"


KINDS: list[Kind] = []


def kept(name: str, make: str, check: str, needs: str = "") -> None:
    KINDS.append(Kind(name=name, make=make, check=check, needs=needs))


def gone(name: str, make: str, why: str, needs: str = "", check: str = "") -> None:
    KINDS.append(Kind(name=name, make=make, why=why, needs=needs, check=check))


# fmt: off
# Plain values and containers

kept("numbers and text", "it = [1, 2.5, 3+4j, 'é\\ud800', b'x', True, None, 10**400]",
     "assert it == [1, 2.5, 3+4j, 'é\\ud800', b'x', True, None, 10**400]")
kept("Ellipsis and NotImplemented", "it = [..., NotImplemented, type(...), type(None)]",
     "assert it[0] is ... and it[1] is NotImplemented and it[2] is type(...) and it[3] is type(None)")
kept("a list that holds itself", "it = [1]; it.append(it)", "assert it[1] is it")
kept("a dict shared by two variables", "a = {'k': []}; it = [a, a['k']]", "assert it[0] is a and it[1] is a['k']")
kept("a set of tuples", "it = {(1, 2), (3, 4), frozenset({5})}", "assert it == {(1, 2), (3, 4), frozenset({5})}")
kept("a range and a slice", "it = [range(2, 9, 3), slice(1, None, 2)]",
     "assert list(it[0]) == [2, 5, 8] and [0, 1, 2, 3][it[1]] == [1, 3]")
kept("a bytearray and views of it", "b = bytearray(b'abcdef'); it = memoryview(b)[2:5]; ro = memoryview(b'xyz')[1:]",
     "b[2] = 65; assert bytes(it) == b'Ade'; it[1] = 66; assert b == b'abABef'; assert bytes(ro) == b'yz' and ro.readonly")
kept("an array.array", "import array; it = array.array('d', [1, 2]); v = memoryview(it)",
     "assert it.tolist() == [1, 2]; v[0] = 9; assert it[0] == 9")
kept("a defaultdict with a lambda", "import collections; n = 3; it = collections.defaultdict(lambda: [n]); it['a']",
     "n = 4; assert it['b'] == [4] and it['a'] == [3]")
kept("a Counter, an OrderedDict and a ChainMap",
     "import collections as c; d = {'z': 1}; it = [c.Counter('aab'), c.OrderedDict(b=1, a=2), c.ChainMap({}, d)]",
     "assert it[0]['a'] == 2 and list(it[1]) == ['b', 'a']; d['q'] = 5; assert it[2]['q'] == 5")
kept("a deque with a limit", "from collections import deque; it = deque([1, 2, 3], maxlen=2)",
     "it.append(4); assert list(it) == [3, 4] and it.maxlen == 2")
kept("a heap", "import heapq; it = [5, 1, 4]; heapq.heapify(it); pop = heapq.heappop", "assert pop(it) == 1")
kept("a UserDict", "from collections import UserDict\nclass It(UserDict): pass\nit = It(a=1)", "assert it['a'] == 1 and type(it) is It")
kept("a mapping proxy", "import types; d = {'a': 1}; it = types.MappingProxyType(d)", "d['b'] = 2; assert it['b'] == 2")
kept("views of a dict", "d = {'a': 1}; it = [d.keys(), d.values(), d.items()]",
     "d['b'] = 2; assert list(it[0]) == ['a', 'b'] and list(it[1]) == [1, 2] and ('b', 2) in it[2]")
kept("a SimpleNamespace", "from types import SimpleNamespace as S; it = S(a=1); it.me = it", "assert it.me is it and it.a == 1")
kept("dates and time zones", "import datetime as d, zoneinfo; it = d.datetime(2024, 1, 2, tzinfo=zoneinfo.ZoneInfo('Europe/Paris'))",
     "assert it.utcoffset() == d.timedelta(hours=1)")
kept("decimals, fractions, a decimal context", "import decimal, fractions; it = [decimal.Decimal('1.10'), fractions.Fraction(1, 3), decimal.Context(prec=5)]",
     "assert str(it[0]) == '1.10' and it[1] * 3 == 1 and it[2].prec == 5")
kept("UUIDs, paths and addresses", "import uuid, pathlib, ipaddress; it = [uuid.UUID(int=5), pathlib.Path('/a/b'), ipaddress.ip_network('10.0.0.0/8')]",
     "assert it[0].int == 5 and it[1].name == 'b' and it[2].prefixlen == 8")
kept("a random.Random in the middle of its sequence", "import random; it = random.Random(3); it.random(); want = random.Random(3); want.random(); want = want.random()",
     "assert it.random() == want")
kept("functions of the random module", "from random import randint, seed; it = randint",
     "import random; seed(5); a = it(0, 10**9); random.seed(5); assert random.randint(0, 10**9) == a")
kept("a SystemRandom", "import random, secrets; it = random.SystemRandom(); choice = secrets.choice", "assert 0 <= it.random() < 1 and choice([1]) == 1")
kept("a struct.Struct", "import struct; it = struct.Struct('<ih')", "assert it.size == 6 and it.unpack(it.pack(1, 2)) == (1, 2)")
kept("a ctypes structure", "import ctypes\nclass P(ctypes.Structure):\n    _fields_ = [('x', ctypes.c_int), ('y', ctypes.c_double)]\nit = P(1, 2.5)",
     "assert it.x == 1 and it.y == 2.5 and ctypes.sizeof(P) == 16; P(3, 4)")
kept("a syntax tree and a code object", "import ast; it = [ast.parse('1 + 1', mode='eval'), compile('6 * 7', '<x>', 'eval')]",
     "assert eval(compile(it[0], '<y>', 'eval')) == 2 and eval(it[1]) == 42")
kept("an inspect.Signature", "import inspect\ndef f(a, *, b=2) -> int: ...\nit = inspect.signature(f)", "assert str(it) == '(a, *, b=2) -> int'")
kept("a string.Template and a formatter", "import string; it = [string.Template('$a'), string.Formatter()]", "assert it[0].substitute(a=1) == '1' and it[1].format('{}', 2) == '2'")
kept("a config parser", "import configparser; it = configparser.ConfigParser(); it.read_string('[a]\\nb = 1')", "assert it['a']['b'] == '1'")
kept("an argument parser", "import argparse; it = argparse.ArgumentParser(prog='p'); it.add_argument('--n', type=int, default=3); it.add_argument('f', type=lambda s: s * 2)",
     "assert vars(it.parse_args(['--n', '4', 'x'])) == {'n': 4, 'f': 'xx'}")
kept("os.environ and sys.path", "import os, sys; it = os.environ; p = sys.path; m = sys.modules", "assert it is os.environ and p is sys.path and m is sys.modules")
kept("the standard streams", "import sys; it = [sys.stdout, sys.stderr]; say = print", "assert it[0] is sys.stdout and it[1] is sys.stderr and say is print")

# Functions

kept("a function that sees a rebound global", "k = 1\ndef it(): return k", "k = 5; assert it() == 5 and it.__globals__ is globals()")
kept("functions that call each other", "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)\nit = even",
     "assert it(10) and it is even; even = None; assert it.__globals__ is globals()")
kept("closures that share a cell", "def make():\n    n = 0\n    def up():\n        nonlocal n; n += 1\n    def get(): return n\n    return up, get\nup, it = make(); up()",
     "up(); assert it() == 2")
kept("a closure that refers to itself", "def make():\n    def fact(n): return 1 if n < 2 else n * fact(n - 1)\n    return fact\nit = make()", "assert it(5) == 120 and it.__closure__[0].cell_contents is it")
kept("a closure with an empty cell", "def make():\n    def f(): return later\n    if 0: later = 1\n    return f\nit = make()", "try: it()\nexcept NameError: pass\nelse: assert 0")
kept("defaults, keyword defaults, annotations and attributes", "def it(a: int, b=[1], *, c={'x': 2}) -> str:\n    'doc'\n    return b, c\nit.tag = it; shared = it.__defaults__[0]",
     "shared.append(7); assert it(0) == ([1, 7], {'x': 2}) and it.tag is it and it.__doc__ == 'doc' and it.__annotations__ == {'a': int, 'return': str}")
kept("a lambda in a list", "it = [lambda x, i=i: x + i for i in range(3)]", "assert [f(1) for f in it] == [1, 2, 3]")
kept("a decorated function", "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def g(*a): return f(*a) * 2\n    return g\n@twice\ndef it(x):\n    'd'\n    return x",
     "assert it(3) == 6 and it.__name__ == 'it' and it.__wrapped__(3) == 3 and it.__doc__ == 'd'")
kept("a cached function", "from functools import lru_cache\n@lru_cache(maxsize=7)\ndef it(n): return n if n < 2 else it(n - 1) + it(n - 2)\nit(20)",
     "assert it(30) == 832040 and it.cache_info().maxsize == 7 and it.cache_info().misses == 31")
kept("a partial of a lambda", "from functools import partial; it = partial(lambda a, b: (a, b), 1)", "assert it(2) == (1, 2)")
kept("a single-dispatch function", "from functools import singledispatch\n@singledispatch\ndef it(x): return 'other'\n@it.register\ndef _(x: int): return 'int'",
     "assert it(1) == 'int' and it('') == 'other'\n@it.register\ndef _(x: str): return 'str'\nassert it('') == 'str'")
kept("operator getters", "import operator; it = [operator.itemgetter(1), operator.attrgetter('real'), operator.methodcaller('upper')]",
     "assert it[0]([5, 6]) == 6 and it[1](3) == 3 and it[2]('a') == 'A'")
kept("built-in functions and methods", "l = [3]; it = [len, l.append, str.upper, int.__add__, (5).__add__, 'x'.join, dict.fromkeys, object.__init__]",
     "it[1](4); assert l == [3, 4] and it[0](l) == 2 and it[2]('a') == 'A' and it[3](1, 2) == 3 and it[4](1) == 6 and it[5]('ab') == 'axb' and it[6]('a') == {'a': None}")
kept("bound methods", "class A:\n    def m(self): return self.v\n    @classmethod\n    def c(cls): return cls\na = A(); a.v = 2; import types; it = [a.m, A.c, types.MethodType(lambda s: s.v + 1, a)]",
     "a.v = 9; assert it[0]() == 9 and it[1]() is A and it[2]() == 10")
kept("a function made by exec with its own globals", "scope = {'k': 1}; exec('def f(): return k', scope); it = scope['f']",
     "scope['k'] = 8; assert it() == 8 and it.__globals__ is scope and scope['f'] is it")
kept("a function of a library's inner scope", "import contextlib\n@contextlib.contextmanager\ndef it(): yield 5", "with it() as v: assert v == 5")
kept("a coroutine function and an async generator function", "async def it(): return 3\nasync def g():\n    yield 1", "import asyncio; assert asyncio.run(it()) == 3")
kept("a coroutine never started", "async def f(a, *b, c=2, **d): return a, b, c, d\nit = f(1, 5, c=3, e=4)", "import asyncio; assert asyncio.run(it) == (1, (5,), 3, {'e': 4})")
kept("a generator never started", "def f(n):\n    for i in range(n): yield i\nit = f(3); e = (x * 2 for x in [1, 2])", "assert list(it) == [0, 1, 2] and list(e) == [2, 4]")
kept("a finished generator", "it = (x for x in [1]); list(it)", "assert list(it) == []")
gone("a suspended generator", "it = (x for x in [1, 2]); next(it)", "generators cannot be saved")
gone("an async generator", "import asyncio\nasync def f():\n    yield 1\n    yield 2\nit = f()\nasyncio.run(anext(it))", "generators cannot be saved")
gone("a coroutine that has begun", "import types\n@types.coroutine\ndef pause(): yield\nasync def f(): await pause()\nit = f(); it.send(None)", "cannot be saved")

# Classes and their instances

kept("a class, its instance and its subclass", "class A:\n    n = 1\n    def __init__(self): self.v = 2\n    def m(self): return self.v + k\nclass B(A):\n    def m(self): return super().m() + 1\nk = 10; a = A(); it = B()",
     "k = 20; assert it.m() == 23 and a.m() == 22 and type(it) is B and isinstance(it, A) and B.__mro__[1] is A; A.m = lambda s: 0; assert it.m() == 1")
kept("a class that refers to itself", "class It:\n    pass\nIt.me = It; It.one = It(); it = It.one", "assert It.me is It and type(It.one) is It and it is It.one")
kept("a nested class", "class A:\n    class B:\n        class C: x = 1\nit = A.B.C()", "assert it.x == 1 and type(it).__qualname__ == 'A.B.C' and type(it) is A.B.C")
kept("slots", "class A:\n    __slots__ = ('x', '__y', '__weakref__')\n    def __init__(self): self.x = 1; self.__y = 2\n    def y(self): return self.__y\nit = A()",
     "assert it.x == 1 and it.y() == 2 and not hasattr(it, '__dict__')\ntry: it.z = 1\nexcept AttributeError: pass\nelse: assert 0")
kept("properties, class and static methods, descriptors", "class D:\n    def __get__(s, i, o): return s.v\n    def __set_name__(s, o, n): s.v = n\nclass A:\n    d = D()\n    @property\n    def p(s): 'doc'; return 1\n    @p.setter\n    def p(s, v): s.__dict__['q'] = v\n    @staticmethod\n    def s(): return 2\n    @classmethod\n    def c(cls): return cls\nA.d2 = A.__dict__['d']; it = A()",
     "it.p = 5; assert it.p == 1 and it.q == 5 and A.s() == 2 and A.c() is A and it.d == 'd' and A.p.__doc__ == 'doc'")
kept("a class with a metaclass", "made = []\nclass M(type):\n    def __new__(m, n, b, d, **k):\n        made.append(n); return super().__new__(m, n, b, d)\n    def __init__(c, n, b, d, **k): super().__init__(n, b, d)\n    def __len__(c): return 7\nclass A(metaclass=M, word=1): pass\nit = A()",
     "assert len(A) == 7 and type(A) is M and made == ['A'] and type(it) is A")
kept("__init_subclass__ with a registry", "class Base:\n    all = []\n    def __init_subclass__(cls, *, tag, **k): super().__init_subclass__(**k); Base.all.append((tag, cls))\nclass A(Base, tag='a'): pass\nit = A()",
     "assert Base.all == [('a', A)] and A.__bases__ == (Base,) and A.__mro__ == (A, Base, object)\nclass C(A, tag='c'): pass\nassert len(Base.all) == 2")
kept("an abstract class with a virtual subclass", "import abc, collections.abc\nclass A(abc.ABC):\n    @abc.abstractmethod\n    def f(self): ...\nclass B(A):\n    def f(self): return 1\nclass V: pass\nA.register(V); collections.abc.Sized.register(V); it = B()",
     "assert it.f() == 1 and isinstance(V(), A) and isinstance(V(), collections.abc.Sized)\ntry: A()\nexcept TypeError: pass\nelse: assert 0")
kept("a dataclass", "from dataclasses import dataclass, field, fields, replace, asdict\n@dataclass(order=True)\nclass P:\n    x: int\n    y: list = field(default_factory=list)\nit = P(1)",
     "assert it == P(1) and P(1).y is not P(1).y and asdict(it) == {'x': 1, 'y': []} and [f.name for f in fields(P)] == ['x', 'y'] and replace(it, x=2) > it")
kept("a frozen dataclass with slots", "from dataclasses import dataclass, FrozenInstanceError\n@dataclass(frozen=True, slots=True)\nclass P:\n    x: int = 3\nit = {P(1): 'a'}",
     "assert it[P(1)] == 'a' and P().x == 3\ntry: P().x = 4\nexcept FrozenInstanceError: pass\nelse: assert 0")
kept("a namedtuple and a NamedTuple", "from collections import namedtuple\nfrom typing import NamedTuple\nP = namedtuple('P', 'x y', defaults=[5])\nclass Q(NamedTuple):\n    a: int\n    b: str = 'z'\n    def m(self): return self.a\nit = [P(1), Q(2)]",
     "assert it[0] == (1, 5) and it[0].y == 5 and it[0]._replace(x=3).x == 3 and it[1].m() == 2 and it[1].b == 'z' and type(it[0]) is P and Q(1)._asdict() == {'a': 1, 'b': 'z'}")
kept("an Enum", "from enum import Enum, auto\nclass C(Enum):\n    RED = 1\n    BLUE = auto()\n    ALIAS = 1\n    def m(self): return self.name\nit = {C.RED: C.BLUE}",
     "assert it[C.RED] is C.BLUE and C(1) is C.RED and C['ALIAS'] is C.RED and C.BLUE.m() == 'BLUE' and list(C) == [C.RED, C.BLUE] and C.RED.value == 1 and repr(C.RED) == '<C.RED: 1>'")
kept("Flag, IntEnum and StrEnum", "from enum import Flag, IntEnum, StrEnum\nclass F(Flag):\n    A = 1\n    B = 2\nclass I(IntEnum):\n    X = 5\nclass S(StrEnum):\n    K = 'v'\nit = [F.A | F.B, I.X, S.K]",
     "assert it[0] == F.A | F.B and it[0] & F.A is F.A and it[1] == 5 and it[1] is I.X and I(5) is I.X and it[2] == 'v' and it[2] is S.K and F(3) is it[0] and ~F.A is F.B")
kept("members of a library's enumeration", "import re, signal; it = [re.I | re.M, signal.SIGINT]", "assert it[0] == re.I | re.M and it[1] is signal.SIGINT")
kept("TypedDict, Protocol, Generic", "from typing import *\nT = TypeVar('T', bound=int)\nclass D(TypedDict, total=False):\n    a: int\n@runtime_checkable\nclass P(Protocol):\n    def m(self): ...\nclass G(Generic[T]):\n    def m(self): return 1\nit = G[int]()",
     "assert isinstance(it, P) and not isinstance(3, P) and D(a=1) == {'a': 1} and D.__total__ is False and G.__parameters__ == (T,) and G[int].__origin__ is G and it.__orig_class__ == G[int] and get_type_hints(D) == {'a': int}")
kept("type variables, NewType, ParamSpec and aliases", "from typing import *\nT = TypeVar('T', int, str); P = ParamSpec('P'); N = NewType('N', int); Ts = TypeVarTuple('Ts')\nit = [T, P, N, list[T], Callable[P, T], int | None, Optional[N], Ts, Any, Union[int, str], P.args]",
     "assert it[0] is T and it[3].__args__[0] is T and it[2](3) == 3 and it[5] == int | None and it[6].__args__[0] is N and it[8] is Any and T.__constraints__ == (int, str) and it[10].__origin__ is P")
kept("an exception with attributes, notes and a cause", "class E(Exception):\n    def __init__(self, a, *, b): super().__init__(a); self.b = b\ntry:\n    try: 1 / 0\n    except ZeroDivisionError as z: raise E('x', b=5) from z\nexcept E as e: e.add_note('n'); it = e",
     "assert it.args == ('x',) and it.b == 5 and it.__notes__ == ['n'] and type(it.__cause__) is ZeroDivisionError and type(it) is E and it.__context__ is it.__cause__")
kept("exceptions of the language", "it = []\nfor code in ('open(\"/no\")', '{}[1]', 'x y', 'b\"\\\\xff\".decode()', 'import nope', 'nope', 'None.a', 'raise ExceptionGroup(\"g\", [ValueError(1)])'):\n    try: exec(code)\n    except BaseException as e: it.append(e)",
     "assert it[0].errno == 2 and it[0].filename == '/no' and str(it[1]) == '1' and it[2].lineno == 1 and it[3].start == 0 and it[4].name == 'nope' and it[5].name == 'nope' and it[6].name == 'a' and it[7].exceptions[0].args == (1,) and 'Errno 2' in str(it[0])")
kept("total_ordering and cached_property", "from functools import total_ordering, cached_property, partialmethod\n@total_ordering\nclass A:\n    def __init__(s, v): s.v = v\n    def __eq__(s, o): return s.v == o.v\n    def __lt__(s, o): return s.v < o.v\n    @cached_property\n    def c(s): s.n = getattr(s, 'n', 0) + 1; return s.v\n    def f(s, a): return a\n    g = partialmethod(f, 4)\nit = A(3); it.c",
     "assert it >= A(2) and it.c == 3 and it.n == 1 and A(7).c == 7 and it.g() == 4")
kept("__getstate__, __reduce__ and __getnewargs__", "class A:\n    def __init__(s): s.v = 1; s.big = 2\n    def __getstate__(s): return {'v': s.v}\n    def __setstate__(s, d): s.__dict__.update(d, big=None)\nclass B:\n    def __init__(s, n): s.n = n\n    def __reduce__(s): return B, (s.n,)\nclass C(tuple):\n    def __new__(c, a, b): return tuple.__new__(c, (a, b))\n    def __getnewargs__(s): return s[0], s[1]\nit = [A(), B(4), C(1, 2)]",
     "assert it[0].v == 1 and it[0].big is None and it[1].n == 4 and it[2] == (1, 2) and type(it[2]) is C")
kept("a singleton by __new__", "class S:\n    one = None\n    def __new__(c):\n        if c.one is None: c.one = super().__new__(c)\n        return c.one\nit = S(); it.v = 3", "assert S() is it and it.v == 3 and S.one is it")
kept("an object that answers to any attribute", "class A:\n    def __init__(s): s.d = {'x': 1}\n    def __getattr__(s, n):\n        try: return s.d[n]\n        except KeyError: raise AttributeError(n)\nit = A()", "assert it.x == 1 and it.d == {'x': 1}")
kept("subclasses of list, dict, str and int", "class L(list): pass\nclass D(dict):\n    def __missing__(s, k): return k\nclass S(str):\n    def __new__(c, a, b): s = str.__new__(c, a); s.b = b; return s\nclass I(int): pass\nit = [L([1]), D(a=1), S('x', 'y'), I(5)]; it[0].t = 9",
     "assert it[0] == [1] and it[0].t == 9 and it[1]['q'] == 'q' and it[2] == 'x' and it[2].b == 'y' and it[3] == 5 and [type(x) for x in it] == [L, D, S, I]")
kept("keys whose hash needs their parts, in a cycle", "class N:\n    def __init__(s, n): s.n = n; s.all = set()\n    def __hash__(s): return hash(s.n)\n    def __eq__(s, o): return s.n == o.n\na = N('a'); b = N('b'); a.all |= {a, b}; b.all |= {a}; it = {a: 1, b: 2}",
     "assert it[a] == 1 and it[N('b')] == 2 and a in a.all and a in b.all and N('b') in a.all and len(it) == 2")
kept("a pydantic model", "from pydantic import BaseModel, Field, field_validator\nclass A(BaseModel):\n    x: int = Field(gt=0)\n    y: list['A'] = []\n    @field_validator('x')\n    @classmethod\n    def v(cls, x): return x + k\nk = 1; it = A(x=1, y=[A(x=5)])",
     "k = 10; assert it.x == 2 and it.y[0].x == 6 and A(x='3').x == 13 and A.model_json_schema() and it.model_dump() == {'x': 2, 'y': [{'x': 6, 'y': []}]}\ntry: A(x=-1)\nexcept ValueError: pass\nelse: assert 0", "pydantic")
kept("an attrs class", "import attrs\n@attrs.define\nclass A:\n    x: int = attrs.field(converter=int)\n    y: list = attrs.field(factory=list)\n@attrs.frozen\nclass B:\n    z: int = 1\nit = [A('4'), B()]",
     "assert it[0] == A(4) and attrs.asdict(it[0]) == {'x': 4, 'y': []} and it[1].z == 1 and attrs.fields(A).x.name == 'x'\ntry: it[1].z = 2\nexcept attrs.exceptions.FrozenInstanceError: pass\nelse: assert 0", "attrs")
kept("type parameters of a function", "import sys\nif sys.version_info >= (3, 12):\n    exec('def it[T](x: T) -> T: return x\\ntype Al = list[int]')\nelse: it = None; Al = None", "assert it is None or it(3) == 3 and it.__type_params__[0].__name__ == 'T' and Al.__value__ == list[int]")

kept("a __new__ that takes what __getnewargs__ says", "class P:\n    __slots__ = ('a',)\n    def __new__(cls, a): s = object.__new__(cls); s.a = a; return s\n    def __getnewargs__(self): return (self.a,)\n    def __getstate__(self): return None\nit = P(3); me = [it]",
     "assert it.a == 3 and type(it) is P and me[0] is it")
kept("a tuple of a library whose __new__ changes what it is given", "from unittest import mock; m = mock.Mock(); m(1, k=2); it = m.call_args", "args, words = it; assert args == (1,) and words == {'k': 2} and it == mock.call(1, k=2)")
kept("a metaclass with a property over an attribute", "class M(type):\n    @property\n    def __doc__(cls): return 'd'\n    @property\n    def tag(cls): return cls.__dict__['tag'] * 2\nclass C(metaclass=M):\n    'x'\n    tag = 4\n    def __repr__(self): return 'C!'\nit = C()",
     "assert repr(it) == 'C!' and C.__doc__ == 'd' and C.__dict__['__doc__'] == 'x' and C.tag == 8 and list(vars(M)).index('__doc__') < list(vars(M)).index('tag')")
kept("the order of a class's attributes", "class D: pass\nclass It:\n    a = D()\n    def f(self): ...\n    __slots__ = ('y', '__dict__')\n    b = [1]\n    c = 2\n    d = D()\n    def g(self): return self.y\nit = [n for n in vars(It)]; o = It(); o.y = 5; o.z = 6",
     "assert [n for n in vars(It)] == it and o.g() == 5 and o.z == 6 and It.__slots__ == ('y', '__dict__')")
kept("the attributes of an object as a variable", "class A: pass\na = A(); a.x = 1; it = vars(a); early = A(); d = early.__dict__; early.me = early", "it['y'] = 2; a.z = 3; assert a.y == 2 and it == {'x': 1, 'y': 2, 'z': 3} and it is vars(a) and d is vars(early) and d['me'] is early")

# Modules

kept("modules", "import math, os.path as p, collections.abc; it = math", "assert it.pi > 3 and p.join('a', 'b') == 'a/b' and collections.abc.Sized")
kept("a module made by hand", "import types; it = types.ModuleType('mine', 'doc'); exec('n = 1\\ndef f(): return n', it.__dict__)", "it.n = 6; assert it.f() == 6 and it.__doc__ == 'doc' and it.__name__ == 'mine'")
kept("the notebook's own module and globals", "import __main__; it = __main__; g = globals(); v = 3", "assert it.v == 3 and g is globals() and g['v'] == 3 and vars(it) is g")

# Iterators

kept("iterators with their position", "it = [iter([1, 2, 3]), iter({'a': 1, 'b': 2}), iter('xyz'), iter(range(5)), reversed([1, 2, 3]), iter({7})]\nfor i in it[:5]: next(i)",
     "assert [list(i) for i in it] == [[2, 3], ['b'], ['y', 'z'], [1, 2, 3, 4], [2, 1], [7]]")
kept("an iterator that shares its list", "l = [1, 2, 3]; it = iter(l); next(it)", "l.append(4); assert list(it) == [2, 3, 4]")
kept("zip, map, filter, enumerate", "it = [zip([1, 2], 'ab'), map(lambda x: x + 1, [1, 2]), filter(None, [0, 3, 4]), enumerate('pq', 5)]\nfor i in it: next(i)",
     "assert [list(i) for i in it] == [[(2, 'b')], [3], [4], [(6, 'q')]]")
kept("itertools", "import itertools as t, sys; it = [t.count(3, 2), t.chain([1, 2], [3]), t.cycle('ab'), t.islice(range(9), 2, 5), t.product([1, 2], 'x')] if sys.version_info < (3, 14) else None\nfor i in it or (): next(i)",
     "assert it is None or [next(i) for i in it] == [5, 2, 'b', 3, (2, 'x')]")

kept("sorting keys of a comparison", "from functools import cmp_to_key; k = cmp_to_key(lambda a, b: b - a); it = [k(1), k(2)]", "assert it[1] < it[0] and sorted([1, 3, 2], key=k) == [3, 2, 1] and it[0].obj == 1")
kept("pairwise with its position", "import itertools, sys; it = [itertools.pairwise('abc'), itertools.pairwise([1, 2, 3]), itertools.pairwise([])] if sys.version_info < (3, 12) else None\nif it: next(it[1]), list(it[2])", "assert it is None or [list(i) for i in it] == [[('a', 'b'), ('b', 'c')], [(2, 3)], []]")

# Text and patterns

kept("patterns and matches", "import re; p = re.compile(r'(?P<a>\\w)(\\d)?', re.I); it = [p, p.search('  x1'), list(re.finditer('a', 'aXa'))[1]]",
     "assert it[0] is p and it[1]['a'] == 'x' and it[1].span(2) == (3, 4) and it[1].re is p and it[2].start() == 2 and it[2].pos == 0")
gone("a hash object", "import hashlib; it = hashlib.sha256(b'x')", "cannot be saved")

# Files and databases

kept("a file being read", "import tempfile, os; n = tempfile.mkdtemp() + '/f'; open(n, 'w').write('ab\\ncd\\nef\\n'); it = open(n); it.readline()", "assert it.readline() == 'cd\\n' and it.name == n and it.mode == 'r' and it.encoding")
kept("a binary file being read", "import tempfile; n = tempfile.mkdtemp() + '/f'; open(n, 'wb').write(b'abcdef'); it = open(n, 'rb'); it.read(2); raw = open(n, 'rb', buffering=0); raw.read(3)", "assert it.read(2) == b'cd' and raw.read() == b'def'")
kept("a file being written", "import tempfile; n = tempfile.mkdtemp() + '/f'; it = open(n, 'w', encoding='utf-8'); it.write('abc'); it.flush(); it.write('dé')", "it.write('f'); it.close(); assert open(n, encoding='utf-8').read() == 'abcdéf'")
kept("a file being appended to", "import tempfile; n = tempfile.mkdtemp() + '/f'; open(n, 'w').write('1'); it = open(n, 'ab'); it.write(b'2')", "it.write(b'3'); it.close(); assert open(n).read() == '123'")
kept("a closed file", "import tempfile; n = tempfile.mkdtemp() + '/f'\nwith open(n, 'w') as it: it.write('x')", "assert it.closed\ntry: it.read()\nexcept ValueError: pass\nelse: assert 0")
kept("StringIO and BytesIO with their position", "import io; it = [io.StringIO('a\\nb\\n'), io.BytesIO(b'xyz')]; it[0].readline(); it[1].read(1)", "assert it[0].read() == 'b\\n' and it[1].read() == b'yz' and it[1].getvalue() == b'xyz'")
kept("a temporary file", "import tempfile; it = tempfile.NamedTemporaryFile('w+'); it.write('hello'); it.flush(); it.seek(1)", "assert it.read() == 'ello'")
kept("a temporary file without a name", "import tempfile; it = tempfile.TemporaryFile(); it.write(b'hello'); it.seek(2)", "assert it.read() == b'llo'; it.write(b'!')")
kept("a temporary directory", "import tempfile, os; it = tempfile.TemporaryDirectory(); open(it.name + '/f', 'w').close()", "import os; assert os.listdir(it.name) == ['f']; it.cleanup(); assert not os.path.exists(it.name)")
kept("text files with line ends of their own", "import tempfile, os; n = tempfile.mkdtemp() + '/f'\nopen(n, 'wb').write(b'a\\r\\nb\\rc\\nd'); it = [open(n, newline=e) for e in (None, '', '\\n', '\\r', '\\r\\n')]\nfor f in it[1::2]: f.readline()\nw = open(n + 'w', 'w', newline='\\r\\n'); w.write('x\\n')\nlater = [open(n, newline=None), open(n, newline='')]\nfor f in later: f.read(2)",
     "assert [f.read() for f in it] == ['a\\nb\\nc\\nd', 'b\\rc\\nd', 'a\\r\\nb\\rc\\nd', '\\nb\\rc\\nd', 'a\\r\\nb\\rc\\nd']; w.write('y\\n'); w.close(); assert open(n + 'w', 'rb').read() == b'x\\r\\ny\\r\\n'; assert [f.readline() for f in later] == ['b\\n', '\\n']")
kept("the name and mode of files", "import tempfile, os, pathlib; os.chdir(tempfile.mkdtemp())\nwith open('f', 'wt') as it: it.write('x')\nwith open('f', 'ab') as b: pass\no = open('f'); p = open(pathlib.Path('g'), 'x')", "assert it.name == 'f' and it.mode == 'wt' and it.closed and (b.name, b.mode) == ('f', 'ab') and o.name == 'f' and o.read() == 'x' and p.name == 'g' and p.mode == 'x' and type(b).__name__ == 'BufferedWriter'")
kept("a file opened by codecs", "import codecs, tempfile; n = tempfile.mkdtemp() + '/f'; w = codecs.open(n, 'w', 'utf-8'); w.write('é\\nb\\nc'); w.close(); it = codecs.open(n, 'r', 'utf-8'); it.readline()", "assert it.readline() == 'b\\n' and it.read() == 'c' and it.encoding == 'utf-8' and w.closed")
kept("a mapped file", "import mmap, tempfile; n = tempfile.mkdtemp() + '/f'; open(n, 'wb').write(b'abc' * 5000); f = open(n, 'r+b'); it = mmap.mmap(f.fileno(), 0); r = mmap.mmap(f.fileno(), 100, access=mmap.ACCESS_READ, offset=4096); c = mmap.mmap(f.fileno(), 10, access=mmap.ACCESS_COPY); c[0] = 90; it.seek(1); del f",
     "assert it.read(2) == b'bc' and len(it) == 15000 and r[:2] == (b'abc' * 5000)[4096:4098] and len(r) == 100 and c[:2] == b'Zb'; it[0] = 65; it.flush(); assert open(n, 'rb').read(2) == b'Ab'\ntry: r[0] = 1\nexcept TypeError: pass\nelse: assert 0")
gone("a file read by a for loop", "import tempfile; n = tempfile.mkdtemp() + '/f'; open(n, 'w').write('a\\nb\\nc\\n'); it = open(n); next(it)", "position is not known")
gone("a pipe", "import os; r, w = os.pipe(); it = os.fdopen(r)", "no file with a path")
kept("a database in memory", "import sqlite3; it = sqlite3.connect(':memory:', isolation_level=None); it.row_factory = sqlite3.Row; it.execute('create table t (a)'); it.execute('insert into t values (5)'); row = it.execute('select a from t').fetchone()",
     "assert it.execute('select a from t').fetchone()['a'] == 5 and it.isolation_level is None and row['a'] == 5 and row.keys() == ['a']; it.execute('insert into t values (6)')")
kept("a database in a file", "import sqlite3, tempfile; n = tempfile.mkdtemp() + '/d'; it = sqlite3.connect(n); it.execute('create table t (a)'); it.execute('insert into t values (5)'); it.commit()", "assert it.execute('select a from t').fetchone() == (5,)")
gone("a database cursor", "import sqlite3; c = sqlite3.connect(':memory:'); it = c.execute('select 1 union select 2')", "rows it has yet to give")
kept("an archive being read", "import zipfile, gzip, tempfile; n = tempfile.mkdtemp(); z = zipfile.ZipFile(n + '/z', 'w'); z.writestr('a', 'b'); z.close(); it = zipfile.ZipFile(n + '/z'); x = gzip.open(n + '/g', 'wb'); x.write(b'abc'); x.close(); del x; g = gzip.open(n + '/g'); g.read(1)",
     "assert it.read('a') == b'b' and g.read() == b'bc'")
kept("memory mapped without a file", "import mmap; it = mmap.mmap(-1, 8192); it[:3] = b'abc'; it.seek(1)", "assert it[:3] == b'abc' and it.read(1) == b'b'; it[0] = 1")
gone("a csv reader", "import csv; it = csv.reader(['a,b', 'c,d']); next(it)", "hidden in it")

# Threads, locks, processes, networks

kept("locks", "import threading as t; it = [t.Lock(), t.Lock(), t.RLock(), t.RLock()]; it[1].acquire(); it[3].acquire(); it[3].acquire()",
     "assert it[0].acquire(False) and it[1].locked() and it[2].acquire(False); it[3].release(); it[3].release()\ntry: it[3].release()\nexcept RuntimeError: pass\nelse: assert 0")
kept("events, conditions, semaphores, barriers", "import threading as t; l = t.Lock(); it = [t.Event(), t.Condition(l), t.Semaphore(2), t.Barrier(1), t.BoundedSemaphore(1)]; it[0].set(); it[2].acquire()",
     "assert it[0].is_set() and it[2].acquire(False) and not it[2].acquire(False) and it[3].wait() == 0\nwith it[1]: assert l.locked(); it[1].notify_all()")
kept("queues with what is in them", "import queue; it = [queue.Queue(2), queue.PriorityQueue(), queue.LifoQueue(), queue.SimpleQueue()]\nfor q in it: q.put(2); q.put(1)",
     "assert [q.get() for q in it] == [2, 1, 1, 2] and it[0].maxsize == 2 and it[0].unfinished_tasks == 2; it[0].put(1); it[0].task_done()")
kept("a thread not started", "import threading; l = []; it = threading.Thread(target=l.append, args=(1,), name='T', daemon=True)", "it.start(); it.join(); assert l == [1] and it.name == 'T' and it.daemon")
kept("a finished thread", "import threading\nclass T(threading.Thread):\n    def run(self): self.result = 5\nit = T(); it.start(); it.join()", "assert not it.is_alive() and it.result == 5; it.join()\ntry: it.start()\nexcept RuntimeError: pass\nelse: assert 0")
gone("a running thread", "import threading; stop = threading.Event(); it = threading.Thread(target=stop.wait, daemon=True); it.start()", "running thread")
kept("thread-local values", "import threading; it = threading.local(); it.x = 3", "assert it.x == 3")
kept("pools of threads and processes", "from concurrent.futures import *; it = ThreadPoolExecutor(2); p = ProcessPoolExecutor(1); it.submit(int).result()", "assert it.submit(lambda: 4).result() == 4 and it._max_workers == 2 and p.submit(abs, -2).result() == 2; p.shutdown()")
kept("a multiprocessing pool", "import multiprocessing.pool as m; it = m.ThreadPool(2)", "assert it.map(abs, [-1, -2]) == [1, 2] and isinstance(it, m.ThreadPool); it.terminate()")
kept("a finished future", "from concurrent.futures import Future; it = [Future(), Future()]; it[0].set_result([1]); it[1].set_exception(ValueError(2))", "assert it[0].result() == [1] and it[1].exception().args == (2,)")
gone("a pending future", "from concurrent.futures import Future; it = Future()", "no result yet")
kept("asyncio locks, events and queues", "import asyncio\nasync def f():\n    await it[0].put(3); it[1].set()\nit = [asyncio.Queue(), asyncio.Event(), asyncio.Lock()]; asyncio.run(f())", "async def g():\n    async with it[2]: return await it[0].get(), it[1].is_set()\nassert asyncio.run(g()) == (3, True)")
kept("an event loop", "import asyncio; it = asyncio.new_event_loop()", "async def f(): return 3\nassert it.run_until_complete(f()) == 3; it.close()")
gone("an asyncio task", "import asyncio; loop = asyncio.new_event_loop(); it = loop.create_task(asyncio.sleep(9))", "loop that runs it")
kept("context variables", "import contextvars; it = contextvars.ContextVar('v', default=1); it.set(5); w = contextvars.ContextVar('w'); c = contextvars.copy_context()", "assert it.get() == 5 and it.name == 'v' and contextvars.Context().run(it.get) == 1 and c[it] == 5\ntry: w.get()\nexcept LookupError: pass\nelse: assert 0")
gone("a token of a context variable", "import contextvars; v = contextvars.ContextVar('v'); it = v.set(1)", "context it undoes")
kept("weak references", "import weakref\nclass A: pass\na = A(); it = [weakref.ref(a), weakref.proxy(a), weakref.ref(A())]; a.v = 3", "assert it[0]() is a and it[1].v == 3 and it[2]() is None")
kept("weak dictionaries and sets", "import weakref\nclass A: pass\na = A(); it = [weakref.WeakValueDictionary(x=a), weakref.WeakKeyDictionary({a: 1}), weakref.WeakSet([a])]", "assert it[0]['x'] is a and it[1][a] == 1 and a in it[2]; del a; import gc; gc.collect(); assert not len(it[0]) + len(it[1]) + len(it[2])")
kept("a finalizer", "import weakref\nclass A: pass\nl = []; a = A(); it = weakref.finalize(a, l.append, 1)", "assert it.alive; del a; import gc; gc.collect(); assert l == [1] and not it.alive")
kept("loggers with handlers and levels", "import logging, sys; it = logging.getLogger('mine.sub'); it.setLevel(5); h = logging.StreamHandler(sys.stderr); h.setFormatter(logging.Formatter('%(message)s!')); it.addHandler(h); it.propagate = False; root = logging.getLogger()",
     "assert it is logging.getLogger('mine.sub') and it.level == 5 and it.handlers == [h] and h.stream is sys.stderr and h.formatter._fmt == '%(message)s!' and not it.propagate and root is logging.getLogger(); it.warning('x')")
kept("a finished subprocess", "import subprocess; it = subprocess.Popen(['true']); it.wait(); done = subprocess.run(['echo', 'x'], capture_output=True)", "assert it.returncode == 0 and it.wait() == 0 and it.args == ['true'] and done.stdout == b'x\\n'")
gone("a running subprocess", "import subprocess; it = subprocess.Popen(['sleep', '5'])", "running process")
gone("a socket", "import socket; it = socket.socket()", "connection cannot be saved")
gone("an SSL context", "import ssl; it = ssl.create_default_context()", "keys cannot be read")
kept("a connection not yet opened, an opener", "import http.client, urllib.request, selectors; it = http.client.HTTPConnection('h', 81); o = urllib.request.OpenerDirector(); s = selectors.DefaultSelector()", "assert it.host == 'h' and it.port == 81 and not s.get_map()")
gone("a traceback", "try: 1 / 0\nexcept ZeroDivisionError as e: it = e.__traceback__", "where code stood")

# numpy, pandas, matplotlib and others

N = "import numpy as np\n"
kept("an array", N + "it = np.arange(100_000.).reshape(100, 1000); small = np.ones(3)", "assert it[99, 999] == 99_999; it[0, 0] = 5; small[0] = 2; small.resize(5)", "numpy")
kept("views that share memory", N + "it = np.arange(10_000.).reshape(100, 100); v = it[::2, ::-3]; t = it.T; r = it.ravel(); p = [it[5]]", "it[0] = -1; assert (v[0] == -1).all() and (t[:, 0] == -1).all() and r[3] == -1; it[5] = 2; assert (p[0] == 2).all(); v[1] = 8; assert it[2, 99] == 8 and np.shares_memory(it, t)", "numpy")
kept("Fortran order and the read-only flag", N + "it = np.asfortranarray(np.arange(6.).reshape(2, 3)); ro = np.arange(9000); ro.flags.writeable = False", "assert it.flags.f_contiguous and it[1, 2] == 5 and not ro.flags.writeable and ro[8] == 8", "numpy")
kept("structured, object and masked arrays", N + "s = np.zeros(3, [('x', 'i4'), ('y', 'f8')]); sx = s['x']; o = np.array([1, None, 'a'], object); o[1] = o; ov = o[::2]; it = np.ma.array([1, 2, 3], mask=[0, 1, 0])",
     "sx[1] = 4; assert s['x'][1] == 4 and o[1] is o and it.sum() == 4; o[2] = 'z'; assert ov[1] == 'z'", "numpy")
kept("dates, text, 0-d arrays and scalars", N + "it = [np.array(['2020-01-01'], 'M8[D]'), np.array(['ab', 'c']), np.array(5.), np.float32(2), np.datetime64('2020'), np.dtype('i4'), np.int8]", "assert str(it[0][0]) == '2020-01-01' and it[1][0] == 'ab' and it[2].shape == () and type(it[3]) is np.float32 and it[5] == np.int32 and it[6] is np.int8", "numpy")
kept("a mapped array", N + "import tempfile; n = tempfile.mkdtemp() + '/m'; it = np.memmap(n, 'f8', 'w+', shape=(4, 3)); it[1] = 5; v = it[1]; it.flush()", "v[0] = 7; assert it[1, 0] == 7 and type(it) is np.memmap and it.mode == 'r+'; it.flush(); assert np.fromfile(n)[3] == 7", "numpy")
kept("an array over a bytearray", N + "b = bytearray(b'abcd' * 9000); it = np.frombuffer(b, np.uint8)[4:]", "b[4] = 0; assert it[0] == 0; it[1] = 9; assert b[5] == 9", "numpy")
kept("random generators", N + "it = np.random.default_rng(3); it.random(); want = np.random.default_rng(3).random(2)[1]; r = np.random.RandomState(4); w = np.random.RandomState(4).rand(); rand = np.random.rand", "assert it.random() == want and r.rand() == w; np.random.seed(1); a = rand(); np.random.seed(1); assert np.random.rand() == a", "numpy")
kept("ufuncs, vectorize, poly1d", N + "it = [np.add, np.vectorize(lambda x: x + k), np.poly1d([1, 2]), np.sum, np.linalg.norm]; k = 1", "k = 5; assert it[0] is np.add and it[1]([1])[0] == 6 and it[2](3) == 5 and it[3] is np.sum and it[4]([3, 4]) == 5", "numpy")
kept("an array class of the notebook", N + "class A(np.ndarray): pass\nit = np.arange(3.).view(A); it.unit = 'm'; m = np.matrix([[1, 2]])", "assert type(it) is A and it.unit == 'm' and it.sum() == 3 and (m * m.T)[0, 0] == 5", "numpy")
kept("masked arrays over another array", N + "p = np.arange(4.); it = np.ma.masked_array(p, mask=[0, 1, 0, 0], fill_value=-9); none = np.ma.array([1, 2]); m = it.mask; v = it[1:]; o = np.ma.array(['a', None], object, mask=[1, 0]); c = np.ma.masked", "p[0] = 7; assert it[0] == 7 and it.mask.tolist() == [0, 1, 0, 0] and it.fill_value == -9 and none.mask is np.ma.nomask and np.shares_memory(v, p) and v[0] is np.ma.masked is c and it.filled().tolist() == [7, -9, 2, 3]; it[2] = np.ma.masked; assert it.count() == 2 and o.mask.tolist() == [True, False]", "numpy")
kept("an archive of arrays", N + "import tempfile; n = tempfile.mkdtemp() + '/a.npz'; np.savez(n, a=np.arange(3)); it = np.load(n)", "assert it['a'].tolist() == [0, 1, 2] and it.files == ['a'] and it.f.a[1] == 1; it.close()", "numpy")
kept("a part of a mapped array", N + "import tempfile; n = tempfile.mkdtemp() + '/m'; m = np.memmap(n, 'f8', 'w+', shape=(4, 3)); it = m[1:]; m.flush()", "assert it.filename == n and it.mode == 'r+' and np.shares_memory(it, m)", "numpy")
kept("functions made for arrays", N + "k = 1; it = np.frompyfunc(lambda a, b: a + b + k, 2, 1); v = np.vectorize(lambda x: x + k, otypes=[float]); v([1]); w = np.vectorize(lambda x: x + k); w([1])", "k = 5; assert it(1, 2) == 8 and v([1])[0] == 6 and w([1])[0] == 6 and it.nin == 2", "numpy")
gone("a numpy iterator", N + "it = np.nditer(np.arange(3))", "position cannot be saved", "numpy")

P = "import pandas as pd, numpy as np\n"
kept("a frame", P + "it = pd.DataFrame({'a': [1, 2], 'b': ['x', None], 'c': pd.to_datetime(['2020', '2021'])}, index=list('pq')); it.attrs['k'] = 1", "assert it.loc['q', 'a'] == 2 and it.dtypes['c'].kind == 'M' and it.attrs == {'k': 1} and it.groupby('a').size().sum() == 2; it['d'] = 1; it.loc['p', 'a'] = 9", "pandas")
kept("frames that share memory until written", P + "df = pd.DataFrame({'a': np.arange(9000.)}); it = df[:5000]; s = df['a']; x = pd.Index(s)", "s.iloc[1] = -1; it.iloc[2, 0] = -2; assert df['a'].tolist()[:3] == [0, 1, 2] and x[1] == 1 and s[1] == -1 and it['a'][2] == -2", "pandas")
kept("categoricals, intervals, indexes, timestamps", P + "it = [pd.Categorical(['a', 'b']), pd.Interval(1, 2), pd.MultiIndex.from_product([[1, 2], ['a', 'b']]), pd.Timestamp('2020', tz='UTC'), pd.period_range('2020', periods=2, freq='M'), pd.NA, pd.NaT, pd.RangeIndex(5)]", "assert list(it[0]) == ['a', 'b'] and 1.5 in it[1] and it[2].nlevels == 2 and it[3].year == 2020 and len(it[4]) == 2 and it[5] is pd.NA and it[6] is pd.NaT and it[7].stop == 5", "pandas")
kept("group-bys and rolling windows", P + "df = pd.DataFrame({'g': [1, 1, 2], 'v': [1., 2, 3]}); it = df.groupby('g'); r = df['v'].rolling(2)", "assert it['v'].sum().tolist() == [3, 3] and r.sum().iloc[2] == 5", "pandas")
kept("a figure and its axes", "import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt; it, ax = plt.subplots(); line, = ax.plot([1, 2]); cm = plt.cm.viridis; rc = plt.rcParams", "assert ax.figure is it and line.axes is ax and list(line.get_ydata()) == [1, 2] and cm(0.5) and rc is plt.rcParams; ax.set_title('x'); it.canvas.draw()", "matplotlib")
kept("a colour bar that follows its image", "import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt; fig, ax = plt.subplots(); im = ax.imshow([[0., 1], [2, 3]]); it = fig.colorbar(im); seen = []; ax.callbacks.connect('xlim_changed', lambda a: seen.append(a))", "im.norm.vmax = 10; assert it.vmax == 10 and im.stale; ax.set_xlim(0, 1); assert seen == [ax]; fig.canvas.draw(); plt.close(fig)", "matplotlib")
kept("settings that a library has by name", "from matplotlib import rcParams, rcParamsDefault, rcParamsOrig; it = [rcParamsDefault, rcParams]; import copy; mine = copy.copy(rcParamsDefault)", "import matplotlib as m; assert it[0] is m.rcParamsDefault is rcParamsDefault and it[1] is m.rcParams and rcParamsOrig is m.rcParamsOrig and mine is not it[0] and type(mine) is m.RcParams", "matplotlib")
kept("a pipeline of estimators with a lambda", N + "from sklearn.pipeline import make_pipeline; from sklearn.preprocessing import FunctionTransformer; from sklearn.linear_model import LinearRegression; k = 1\nit = make_pipeline(FunctionTransformer(lambda x: np.asarray(x) * k), LinearRegression()).fit([[1.], [2.]], [2., 4.])", "assert abs(it.predict([[3.]])[0] - 6) < 1e-9; k = 0; assert abs(it.predict([[3.]])[0]) < 1e-9", "sklearn")
kept("sparse matrices and interpolators", N + "import scipy.sparse as sp; from scipy.interpolate import CubicSpline, interp1d; it = [sp.csr_matrix([[0, 1], [2, 0]]), CubicSpline([0, 1, 2], [0, 1, 4]), interp1d([0, 1], [0, 2])]", "assert it[0].sum() == 3 and abs(it[1](1) - 1) < 1e-9 and it[2](0.5) == 1", "scipy")
kept("what sympy makes", "from sympy import *\nx = symbols('x'); f = Function('f'); fx = f(x); eq = Eq(f(x).diff(x), f(x)); it = dsolve(eq)\nclass Mine(Function): pass\nm = Mine(x); p = Poly(x + 1.5, x, domain=RR)", "import sympy; assert fx == f(x) and eq == Eq(f(x).diff(x), f(x)) and it == dsolve(eq) and m == Mine(x) and RR is sympy.RR and test is sympy.test and p == Poly(x + 1.5, x, domain=RR)", "sympy")
kept("numbers of mpmath", "import mpmath; from mpmath import mp, mpf, pi; it = [mpf('1.5'), mp.mpc(1, 2), mp.matrix([[1, 2]])]; q = mpmath.rational.mpq(1, 3)", "assert it[0] == 1.5 and it[1].imag == 2 and it[2][0, 1] == 2 and mp is mpmath.mp and pi is mpmath.pi and q * 3 == 1", "mpmath")
kept("design matrices of patsy", "import patsy, numpy as np; y, it = patsy.dmatrices('y ~ a + np.log(b)', {'y': [1., 2, 3], 'a': [1., 3, 2], 'b': [1., 2, 4]})", "assert it.design_info.column_names == ['Intercept', 'a', 'np.log(b)'] and it.shape == (3, 3) and type(it) is patsy.DesignMatrix; assert patsy.build_design_matrices([it.design_info], {'a': [1.], 'b': [1.]})[0][0, 1] == 1", "patsy")
kept("an image", "from PIL import Image; it = Image.new('RGB', (3, 2), (1, 2, 3))", "assert it.size == (3, 2) and it.getpixel((0, 0)) == (1, 2, 3)", "PIL")
kept("an HTTP client", "import httpx2; it = httpx2.Client(base_url='http://h/x', headers={'A': 'b'}, timeout=7)", "assert str(it.base_url) == 'http://h/x/' and it.headers['a'] == 'b' and it.timeout.read == 7; it.close()", "httpx2")

# What refuses

kept("a list with one bad element", "class Bad:\n    def __reduce__(self): raise SystemExit\nit = [1, Bad(), 3]\nimport types; bad = None", "assert it[0] == 1 and it[2] == 3 and type(it[1]).__name__ == 'Tombstone'")
gone("an object whose __reduce__ raises", "class Bad:\n    def __reduce__(self): raise KeyboardInterrupt\nit = Bad()", "KeyboardInterrupt")
gone("an object whose __reduce__ returns nonsense", "class Bad:\n    def __reduce__(self): return 'no such name'\nit = Bad()", "no module has it")
