"""What code in WebAssembly finds of the machine, and what it can say to the server: nothing, and only its own words."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from quire.frontends.python import Quire
from tests.support.backends import BACKENDS
from tests.support.security.guests import JAVASCRIPT, PYTHON, RAW, SECRET, TRY, Book, Outside

SEES = (
    "import os, sys, gc\nrepr(dict(os.environ)) + repr([sys.argv, sys.path, sys.flags, os.getcwd(), sys.executable])",
    "JSON.stringify(Object.getOwnPropertyNames(globalThis)) + `${new Error().stack}`",
)


async def test_nothing_of_the_server_s_environment_is_there(attacker: Book, neighbour: Book, outside: Outside) -> None:
    seen = await attacker.text(*SEES)
    for word in (SECRET, "SECRET_TOKEN", str(outside.folder), "site-packages", str(Path.home())):
        assert word not in seen
    if attacker.is_python:
        assert await attacker.text("import os\nsorted(os.environ)") == "['HOME', 'PWD']"
        names = "import wit_world, _socket, posix\n"
        assert (
            await attacker.text(f"{names}any({SECRET!r} in repr(vars(each)) for each in (wit_world, posix))") == "False"
        )
    await neighbour.was_not_disturbed()


NETWORK = {
    "a connection": "socket.create_connection(('127.0.0.1', {port}), 5)",
    "a socket": "socket.socket().connect(('127.0.0.1', {port}))",
    "a socket below": "_socket.socket(2, 1).connect(('127.0.0.1', {port}))",
    "a socket below, as it was": "_socket.socket.connect(_socket.socket(2, 1), ('127.0.0.1', {port}))",
    "a datagram": "_socket.socket(2, 2).sendto(b'x', ('127.0.0.1', {port}))",
    "IPv6": "_socket.socket(10, 1).connect(('::1', {port}))",
    "one that listens": "_socket.socket(2, 1).bind(('127.0.0.1', 0))",
    "among files": "_socket.socket(1, 1).connect('service')",
    "a name": "_socket.getaddrinfo('localhost', {port})",
    "a page": "__import__('urllib.request').request.urlopen('http://127.0.0.1:{port}/')",
    "a task": "__import__('asyncio').run(__import__('asyncio').open_connection('127.0.0.1', {port}))",
    "a descriptor that was there": "_socket.socket(fileno=3).getpeername()",
    "one made of a number": "_socket.socket(2, 1, 0, 5).send(b'x')",
}


async def test_there_is_no_network(attacker: Book, neighbour: Book) -> None:
    with socket.socket() as tcp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        tcp.settimeout(0)
        for way in NETWORK.values():
            code = f"{TRY}\nimport socket, _socket\ntried(lambda: {way.format(port=tcp.getsockname()[1])})"
            said = await attacker.text(code, "typeof fetch + typeof XMLHttpRequest + typeof WebSocket + typeof require")
            refused = (
                "'OSError'",
                "'PermissionError'",
                "'URLError'",
                "'AttributeError'",
                "'gaierror'",
                "'RuntimeError'",
            )
            assert said.splitlines()[-1] in (
                refused if attacker.is_python else ("'undefinedundefinedundefinedundefined'",)
            ), (way, said)
        with pytest.raises(BlockingIOError):
            tcp.accept()
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


PROCESSES = (
    "os.fork()",
    "os.system('true')",
    "os.popen('true')",
    "os.posix_spawn('/bin/true', ['true'], {})",
    "os.execv('/bin/true', ['true'])",
    "os.kill(1, 9)",
    "os.pipe()",
    "__import__('subprocess').run(['true'])",
    "__import__('multiprocessing').Process(target=print).start()",
    "__import__('concurrent.futures').futures.ProcessPoolExecutor().submit(print).result()",
    "__import__('threading').Thread(target=print).start()",
    "__import__('_thread').start_new_thread(print, ())",
    "__import__('ctypes').CDLL(None)",
    "__import__('_ctypes').dlopen('libc.so.6', 0)",
    "__import__('_posixsubprocess').fork_exec()",
    "__import__('pty').spawn('true')",
    "__import__('mmap').mmap(-1, 10)",
    "__import__('fcntl').fcntl(0, 0)",
    "__import__('imp')",
)


async def test_there_are_no_processes_threads_or_libraries(attacker: Book, neighbour: Book) -> None:
    if attacker.is_python:
        refused = (
            "AttributeError",
            "OSError",
            "RuntimeError",
            "ModuleNotFoundError",
            "NotImplementedError",
            "ImportError",
        )
        for step in PROCESSES:
            said = await attacker.text(f"{TRY}\ntried(lambda: {step})")
            assert said.strip("'") in refused, (step, said)
    else:
        kinds = [f"typeof {name}" for name in ("process", "Worker", "WebAssembly", "std", "os", "bjson")]
        seen = await attacker.text("", f"[{', '.join(kinds)}].join()")
        assert set(seen.strip("'").split(",")) == {"undefined"}
        for module in ("std", "os", "qjs:std", "qjs:os", "fs", "node:fs", "child_process", "file:///etc/passwd"):
            assert (await attacker.run("", f"await import({module!r})")).state == "ERROR"
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


FORGED = {
    "the end of another run": "said('Finished', run='another', outcome='success', value=[])",
    "two ends": "[said('Finished', run=frame.run, outcome='success', value=[]) for n in range(2)]; wit_world.host('{')",
    "an answer": "said('Value', value=[1], what='int')",
    "an image": "said('Kept', size=1)",
    "its own end": "said('Stopped', reason='as it likes')",
    "a hello": "said('Hello', version='1', artefact='x')",
    "what is no word": "said('Nothing')",
    "a word with too much": "said('Printed', stream='stdout', data='x', more=1)",
    "no JSON": "wit_world.host('{')",
    "deep JSON": "wit_world.host('[' * 1_000_000)",
    "large JSON": "wit_world.host('\"' + 'x' * 50_000_000 + '\"')",
    "bytes that are not there": 'wit_world.host(\'{"say":"Printed","with":{"data":{"$":9}},"parts":[5]}\\nx\')',
    "a call of nothing": "said('Called', call=1, do='everything', capability=[], method={}, given=3)",
}
SAID = """
import json
frame = sys._getframe()
while not hasattr(frame.f_locals.get('request'), 'run'): frame = frame.f_back
frame = frame.f_locals['request']
def said(word, **given): return wit_world.host(json.dumps({'say': word, 'with': given, 'parts': []}))
"""


@PYTHON
@pytest.mark.parametrize("kind", FORGED)
async def test_who_forges_what_a_guest_says_ends_itself_alone(attacker: Book, neighbour: Book, kind: str) -> None:
    forged = await attacker.run(f"{RAW}{SAID}\n{FORGED[kind]}")
    assert forged.state == "CRASHED", await forged.text()
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


@PYTHON
async def test_an_end_that_is_said_too_early_is_not_heard(attacker: Book, neighbour: Book) -> None:
    early = "said('Finished', run=frame.run, outcome='success', value=[])\nwhile True: pass"
    assert (await attacker.run(f"{RAW}{SAID}\n{early}", timeout=1)).state == "CRASHED"
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


async def test_bytes_that_look_like_frames_are_output(attacker: Book, neighbour: Book) -> None:
    said = await attacker.text(
        "import os, sys\nfor fd in (0, 1, 2, 3, 4, 5, 6, 7, 8):\n"
        "    try: os.write(fd, b'QW\\x01\\x00\\x00\\x00\\x00\\x10' + b'{\"say\": \"Finished\"}\\n')\n"
        "    except OSError: pass\n"
        "sys.__stdout__.write('QW\\x01\\0\\0\\0\\0'); print('\\0\\0\\0\\1\\0\\0\\0\\xff{\"say\": \"Stopped\"}')",
        'console.log(\'QW\\x01\\0\\0\\0\\0\\x10{"say": "Finished"}\');'
        'console.error(\'\\0\\0\\0\\1\\0\\0\\0\\xff{"say": "Stopped"}\')',
    )
    assert '{"say": "Finished"}' in said and '{"say": "Stopped"}' in said
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


@pytest.fixture(scope="module")
async def journal(opened: Quire, outside: Outside) -> Path:
    """What a capability that is there has heard."""
    journal = outside.folder / "journal"
    await opened.install_capability("quick", command=[sys.executable, str(BACKENDS / "quick.py"), str(journal)])
    return journal


def heard(journal: Path, word: str) -> int:
    return sum(line.startswith("called") and word in line for line in journal.read_text().splitlines())


async def test_calls_past_the_most_are_refused(attacker: Book, neighbour: Book, journal: Path) -> None:
    before = heard(journal, "echo")
    flooded = await attacker.text(
        "refused = []\nfor n in range(500):\n    try: quick.echo(n=n)\n"
        "    except Exception as error: refused.append(str(error))\n"
        "len(refused), 'max_calls' in refused[0]",
        "let refused = []; for (let n = 0; n < 500; n++)"
        "  { try { await quick.echo({n}) } catch (e) { refused.push(e.message) } };"
        "`(${refused.length}, ${/max_calls/.test(refused[0]) ? 'True' : 'False'})`",
    )
    assert flooded.strip("'") == "(450, True)" and heard(journal, "echo") == before + 50
    assert "7" in await attacker.text("quick.echo(n=7)", "await quick.echo({n: 7})")
    await neighbour.was_not_disturbed()


async def test_an_argument_that_is_too_large_or_too_deep_is_refused(
    attacker: Book, neighbour: Book, journal: Path
) -> None:
    before = heard(journal, "echo-text")
    for python, javascript in (
        ("quick.echo_text(text='x' * 100_000_000)", "await quick.echo_text({text: 'x'.repeat(100000000)})"),
        (
            "x = []\nfor n in range(100_000): x = [x]\nquick.echo_text(text=x)",
            "let x = []; for (let n = 0; n < 100000; n++) x = [x]; await quick.echo_text({text: x})",
        ),
        ("x = []; x.append(x)\nquick.echo_text(text=x)", "const y = {}; y.y = y; await quick.echo_text(y)"),
    ):
        assert (await attacker.run(python, javascript)).state in ("ERROR", "CRASHED")
        await attacker.is_as_before()
    assert heard(journal, "echo-text") == before
    await neighbour.was_not_disturbed()


async def test_a_call_inside_of_whatever_is_asked_is_a_call_like_others(
    attacker: Book, neighbour: Book, journal: Path
) -> None:
    nested = await attacker.text(
        "class R:\n    def __repr__(self): return 'said ' + str(quick.echo(n=5))\n"
        "print(R()); quick.echo(n=int(str(quick.echo(n=4)))); R()",
        "const found = []; await quick.echo({ get n() { quick.echo({n: 3}).then(v => found.push(v)); return 4 } });"
        "await quick.echo({ n: 1, toJSON() { quick.echo({n: 5}).then(v => found.push(v)); return {n: 2} } });"
        "await null; 'said ' + found.join()",
    )
    assert nested.endswith("said 5" if attacker.is_python else "'said 3,5'"), nested
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


async def test_a_call_that_is_never_answered_ends_with_its_run(attacker: Book, neighbour: Book, journal: Path) -> None:
    held = await attacker.run("quick.hold(name='for ever')", "await quick.hold({name: 'for ever'})", timeout=1)
    assert held.state == "TIMEOUT"
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()
    assert "for ever" not in await attacker.text("quick.held()", "await quick.held()")


@PYTHON
async def test_calls_are_not_made_while_nothing_runs(attacker: Book, neighbour: Book, journal: Path) -> None:
    before = heard(journal, "wipe")
    await attacker.run(
        f"{RAW}from quire.worker.execution import namespace\nold = namespace.describe\n"
        "def describe(found):\n    try: quick.wipe(path='/')\n    except Exception: pass\n    return old(found)\n"
        "namespace.describe = describe"
    )
    await attacker.notebook.keep("described")
    assert heard(journal, "wipe") == before
    await attacker.is_as_before()


POLLUTION = (
    "Object.prototype.toJSON = () => 'polluted'; Object.prototype.value = Object.prototype.text = 7",
    "Object.defineProperty(Object.prototype, 'get', { get() { for (;;); }, set() { for (;;); } })",
    "Array.prototype.push = Array.prototype.join = Array.prototype[Symbol.iterator] = () => { for (;;); }",
    "String.prototype.slice = Function.prototype.call = Function.prototype.apply = Promise.prototype.then = null",
    "JSON.stringify = JSON.parse = Object.defineProperty = Reflect.ownKeys = () => { for (;;); }",
    "globalThis.files = globalThis.console = globalThis.display = globalThis.quick = null",
    "Object.setPrototypeOf(globalThis, new Proxy({}, { get() { for (;;); }, has() { return false } }))",
    "Map = Set = WeakMap = Error = TypeError = Uint8Array = Proxy = Promise = undefined",
)
TRAPS = (
    "new Proxy({}, new Proxy({}, { get() { for (;;); } }))",
    "new Proxy(function () {}, { ownKeys() { for (;;); }, getPrototypeOf() { for (;;); } })",
    "({ get a() { for (;;); }, toJSON() { for (;;); }, [Symbol.toPrimitive]() { for (;;); } })",
    "Object.assign(Object.create({ get constructor() { for (;;); } }), { a: 1 })",
    "class M extends Map { get size() { for (;;); } entries() { for (;;); } }; new M([[1, 2]])",
    "const gone = Proxy.revocable({}, {}); gone.revoke(); gone.proxy",
)


@JAVASCRIPT
@pytest.mark.parametrize("code", POLLUTION)
async def test_what_code_does_to_the_language_is_done_to_itself(attacker: Book, neighbour: Book, code: str) -> None:
    await attacker.run(code, timeout=5)
    assert await attacker.text("", "[kept, { a: [1, 2] }]") == "[ 41, { a: [ 1, 2 ] } ]"
    await attacker.notebook.rollback("before")
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


@PYTHON
@pytest.mark.parametrize(
    "what", ["builtins", "sys", "os", "io", "json", "quire.wire.texts", "quire.worker.execution.namespace"]
)
async def test_what_code_does_to_modules_is_undone_with_a_rollback(attacker: Book, neighbour: Book, what: str) -> None:
    spoil = f"import importlib\nfound = vars(importlib.import_module({what!r}))\n"
    spoil += "for name in list(found): found[name] = None"
    assert (await attacker.run(spoil)).state != "TIMEOUT"
    await attacker.notebook.rollback("before")
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


@JAVASCRIPT
@pytest.mark.parametrize("code", TRAPS)
async def test_a_value_that_is_a_trap_is_shown_without_stepping_into_it(
    attacker: Book, neighbour: Book, code: str
) -> None:
    shown = await attacker.run("", f"{code}", timeout=5)
    assert shown.state == "SUCCESS" and await shown.text()
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


@JAVASCRIPT
async def test_the_constructor_of_a_constructor_makes_what_code_could_make_before(attacker: Book) -> None:
    for where in ("this", "files.read", "console", "(() => {})", "(async () => {})", "display", "caps", "setTimeout"):
        made = f"Object.getPrototypeOf(async () => {{}}).constructor && {where}.constructor.constructor"
        tried = await attacker.run(
            "", f"({made} || Function)('return [typeof host, typeof lexical, typeof own].join()')()"
        )
        assert await tried.text() in ("'undefined,undefined,undefined'", "Promise { 'undefined,undefined,undefined' }")
    await attacker.is_as_before()
