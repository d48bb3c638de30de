"""IPython syntax turned into Python beside what IPython makes of it."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from quire.worker.shim.transform import transform

CELLS = (
    r'''
%time x
===
x = %time y
===
x= %time y
===
x =%time y
===
!ls -l "it's"
===
files = !ls *.py
===
!!ls
===
%%time
x=1
===


%%bash -s foo
echo hi

===
obj?
===
obj??
===
?obj
===
??obj
===
a.b*?
===
?a*
===
%time?
===
%%time?
===
?
===
for x in y:
    %time f(x)
    !echo {x}
    z = !ls
    x?
===
x = """
%time
!ls
"""
===
f(a,
%b)
===
f(
  a, # it's
  b='?'
)?
===
x = a \
 %b
===
!ls \
  -l
y
===
>>> x = 1
>>> for a in b:
...     print(x)
===
In [1]: x = 1
   ...: y = 2
===
In [12]: %time x
Out[12]: 3
===
    x = 1
    if x:
        y
===
  %time x
===
/f a b
===
,f a b
===
;f a b
===
x = y = !ls
===
x: int = !ls
===
x += 1
===
a, b = !echo a b
===
d['x'] = %time y
===
print('what?')
===
# what?
===
x = 5 # what?
===
x = a?
===
print("a!")
!echo "unclosed
x = 1
===
!cd /tmp && ls
%cd
%matplotlib inline
import os
===
%%capture out
print(1)
%time x
===
%alias_magic t timeit
===
def f():
    """doc
    %time
    """
    !ls
    return 1
===
x = f"{a!r}" "!"
!ls
===
if a: b
else: c
%who
===
a = b if c != d else e
%who
===
!pip install "x>=1"
===
%timeit -n 1 [x for x in y if x%2==0]
===
%
===
!
===
x = [1,
  2] ; y?
===
lst[0].foo?
===
print(lst[0].foo?
===
@dec
def f(): pass
!ls
===
%%html
<b>a</b>
<script>x?</script>
===
x = !ls \
 -l
y
===
x = %sql SELECT *
===
x == %foo
===
!ls # foo
===
<4>
<4>
x
===
%env A=b
===
%%timeit?
===
x = 'a' \
   'b?'
!ls
===
async def f():
    await x
!ls
===
%cd -q "a b"
===
rate = 5 # %
%who
===
_ = """!ls""" ; x
?x
===
get?
<2>
===
x=1
<4>
!ls
===
if 1:
	!ls
'''.strip("\n")
    .replace("<4>", "    ")
    .replace("<2>", "  ")
    .split("\n===\n")
)

REFUSED = "what IPython itself does not take"


def oracle(code: str) -> str:
    try:
        return squeezed(TransformerManager().transform_cell(code))
    except SyntaxError:
        return REFUSED


def squeezed(code: str) -> str:
    """Without empty lines: ours are kept, so that line numbers are."""
    return "\n".join(line.rstrip() for line in code.split("\n") if line.strip())


@pytest.mark.parametrize("code", CELLS)
def test_a_cell_becomes_the_python_that_ipython_makes_of_it(code: str) -> None:
    wanted = oracle(code)
    if wanted == REFUSED:
        with pytest.raises(SyntaxError):
            ast.parse(transform(code))
    else:
        assert squeezed(transform(code)) == wanted


STATEMENTS = [
    "x = 1",
    "!ls 'it",
    "%time f(x)",
    "out = !ls -l",
    "v = %time y",
    "x?",
    "x.y??",
    "?x",
    "if x:\n    !echo $x\n    y = %who\n    z",
    'text = """\n%time\n!ls\n"""',
    "f(a,\n  b='?',\n  c=d % e)",
    "g = [1,\n%2]",
    "# what?",
    "print('!', \"%\")",
    "!long \\\n  command",
    "y = a \\\n  % b",
    "def f():\n    '''%doc?'''\n    %cd /tmp\n    return {\n'a': 1}",
    "",
    "s = f'{x!r:>{w}}' 'a?'",
    "u = rb'\\\\'; w = 2",
]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=8).map("\n".join))
def test_statements_one_after_another_become_what_ipython_makes_of_them(code: str) -> None:
    assert squeezed(transform(code)) == oracle(code)


@pytest.mark.parametrize("lead", ["\n\n!ls\n", "!ls \\\n -l\n", "v = !ls \\\n\\\n -l\n", "!a\n", "a?\n"])
def test_what_comes_after_keeps_its_line_number(lead: str) -> None:
    code = lead + "marker"
    assert transform(code).split("\n").index("marker") == code.split("\n").index("marker")


@settings(max_examples=300)
@given(st.text(alphabet="ab1 \n\t%!?=()[]'\"\\#:,;/.>In{}f"))
def test_any_text_gives_text_with_no_more_lines(code: str) -> None:
    assert transform(code).rstrip("\n").count("\n") <= code.count("\n")


@pytest.mark.parametrize(
    "code", ["x = 1\n", "def f():\n    return 5 % 2\n", "a != b", "x = '''\n%a\n'''", "b = (1\n%2)"]
)
def test_python_stays_as_it_is(code: str) -> None:
    assert transform(code) == code
