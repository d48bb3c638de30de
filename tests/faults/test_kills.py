"""The server, the supervisor and the kernel are killed at random moments of sessions: no acknowledged cell is lost, the
namespace is that after an acknowledged run, and missing runs are named."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import io
import os
import random
import re
import signal
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from quire.core.model import LOCAL, Blob, OutputType, Run
from quire.stores.blobs import FileBlobs
from quire.stores.sql import SqlStore
from quire.worker.processes.checkpoints import WORKER_OOM_SCORE
from tests.support.processes import alive, server_of
from tests.support.servers import NO_SANDBOX, call, stdio_client, text
from tests.support.waiting import DEADLINE, wait_until

ROUNDS = 4
SESSIONS = 5  # at once, in each round
KILLS = 10  # in each session
VICTIMS = ("server", "supervisor", "kernel")
SETTINGS: dict[str, Any] = {
    "grace": 0.5,
    "preload": "numpy",
    "spare_kernels": 0,
    "snapshot_interval": 0.05,
    "checkpoint_bytes": 64 << 20,
    **NO_SANDBOX,
}


async def test_a_kill_of_each_process_loses_no_acknowledged_cell(science: None, tmp_path: Path) -> None:
    session = Session(tmp_path / "data", 0, VICTIMS)
    await session.play()
    assert session.kills == list(VICTIMS)


@pytest.mark.parametrize(
    "round_", [pytest.param(number, marks=pytest.mark.soak(sample=number == 0)) for number in range(ROUNDS)]
)
async def test_random_kills_lose_no_acknowledged_cell(science: None, tmp_path: Path, round_: int) -> None:
    sessions = [session_of_random_kills(tmp_path, round_ * SESSIONS + number) for number in range(SESSIONS)]
    await asyncio.gather(*(session.play() for session in sessions))
    assert sum(len(session.kills) for session in sessions) == SESSIONS * KILLS
    assert {victim for session in sessions for victim in session.kills} == set(VICTIMS)


def session_of_random_kills(folder: Path, seed: int) -> Session:
    return Session(folder / str(seed), seed, tuple(random.Random(seed).choices(VICTIMS, (25, 30, 45), k=KILLS)))


SEE = """
[[name, type(value).__name__,
  repr(value(3)) if type(value).__name__ == 'function' else
  repr(value.tolist() if value.size < 50 else [value.size, float(value.sum())]) if hasattr(value, 'tolist') else
  repr(value)]
 for name, value in sorted(globals().items())
 if name[0] != '_' and name not in ('In', 'Out', 'get_ipython') and type(value).__name__ != 'module'
] + [globals().get('both') is globals().get('items'),
     {'arr', 'view'} <= set(globals()) and bool(np.shares_memory(arr, view))]
"""
"""An expression: all there is, with what shares memory."""

BEGIN = """
import numpy as np, random, time
random.seed(1)
n, items, table, word = 1, [], {}, 'w'
arr = np.arange(10)
view = arr[2:6]
both = items
def f(a):
    return a * (n if 'n' in globals() else 0)
"""

LONG = """
for i in range({k}):
    print('step', i, flush=True)
    items.append(i)
    time.sleep(0.05)
"""


def cells(choose: random.Random) -> Iterator[str]:
    """What a session runs: seeded, without end."""
    kinds = (
        "n = {k}",
        "n += {k}\nprint(n)",
        "items.append({k})",
        "items = [{k}]\nboth = items",
        "both[:0] = [{k}, 'x']",
        "table['k{k}'] = [items, {k}]",
        "arr[{i}] = {k}",
        "view[:] += {k}\nprint(arr.sum())",
        "arr = np.arange({k}, {k} + 10)\nview = arr[2:6]",
        "big = np.full(300_000 + {k}, {k})\nbig[{k}] = 7",
        "if 'big' in globals(): big[{k} * 100] += {k}",
        "def f(a):\n    return a + {k} + (n if 'n' in globals() else 0)",
        "class C{i}:\n    x = {k}\n    def __repr__(self): return f'C{{self.x}}'\nc{i} = C{i}()",
        "word = random.random()",
        "del word",
        "items.append({k})\n1 / 0",
        "print('x' * 30_000)",
        LONG,
        LONG,
    )
    while True:
        yield choose.choice(kinds).format(k=choose.randrange(1, 60), i=choose.randrange(10))


@dataclass(eq=False)
class Node:
    """A run, and by its way the namespace after it."""

    tick: int  # what the cell binds, first of all: no two states are the same
    number: int  # of its cell
    source: str
    parent: Node | None

    def way(self) -> list[Node]:
        """Newest first."""
        found: list[Node] = []
        node: Node | None = self
        while node is not None:
            found.append(node)
            node = node.parent
        return found


@dataclass(eq=False)
class Asked:
    """A cell whose answer is waited for."""

    tick: int
    source: str


@dataclass(eq=False, kw_only=True)
class Acknowledged:
    """What a client was told of a run."""

    source: str
    state: str
    printed: str


@dataclass(eq=False)
class Session:
    folder: Path
    seed: int
    victims: tuple[str, ...]
    kills: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.choose = random.Random(self.seed)
        self.cells = cells(self.choose)
        self.nodes: dict[int, Node] = {}  # by tick
        self.head: Node | None = None
        self.journal: list[Acknowledged] = []
        self.saved: dict[str, list[int]] = {}  # by name, the ticks of the states it may hold
        self.floor: Node | None = None  # known to be on disk
        self.told: set[int] = set()  # cells said not to be in the namespace, since it was last seen
        self.fresh = False  # all was said to be gone
        self.may_be: list[Node | None] = []  # where an unanswered call may have gone to
        self.asked: Asked | None = None
        self.waits: str = ""  # for an answer to this tool
        self.disturbed = False  # something was killed since all of the namespace was seen
        self.deferred = False  # since then a call was made whose answer has no place for what happened
        self.shown = ""  # by a run under way when the server was killed, as far as that is on disk
        self.log: list[str] = []
        self.ticks = 0
        self.begun = anyio.current_time()

    async def play(self) -> None:
        try:
            while len(self.kills) < len(self.victims):
                await self.serve()
        except BaseException as error:
            error.add_note(f"session {self.seed}:\n" + "\n".join(self.log[-30:]))
            raise

    def note(self, happened: str) -> None:
        self.log.append(f"{anyio.current_time() - self.begun:.2f} {happened}")

    # One server's life

    async def serve(self) -> None:
        client = stdio_client(self.folder, **SETTINGS)
        await client.__aenter__()
        server, end = server_of(self.folder), signal.SIGKILL
        try:
            self.note(f"server {server}")
            await self.recovered()
            await self.look(client)
            while len(self.kills) < len(self.victims):
                victim = self.victims[len(self.kills)]
                killing = asyncio.ensure_future(self.kill(victim, server, self.choose.random() ** 2 * 0.5))
                try:
                    while not killing.done():
                        await self.act(client)
                except AssertionError:
                    raise
                except Exception:
                    if victim != "server":  # its connection ends as it likes
                        raise
                finally:
                    await killing
                self.kills.append(victim)
                if victim == "server":
                    wait_until(lambda: not alive(server), "the server is gone")
                    self.shown = kept(self.folder)
                    return
                await self.look(client)
            end = signal.SIGTERM
        finally:
            if alive(server):
                os.kill(server, end)
            with contextlib.suppress(Exception):
                await client.__aexit__(None, None, None)
        await self.read_journal()

    async def kill(self, victim: str, server: int, delay: float) -> None:
        await anyio.sleep(delay)
        while True:
            found = {
                "server": lambda: [server],
                "supervisor": lambda: supervisors(server),
                "kernel": lambda: lives(server),
            }
            for pid in found[victim]():
                self.disturbed = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.note(f"-- killed the {victim}, {pid}, while {self.waits or 'nothing'} was asked")
                    return
            await anyio.sleep(0.001)  # one is just being made

    # What a client does

    async def act(self, client: Client[Any]) -> None:
        what = self.choose.random()
        if what < 0.7 or self.head is None:
            await self.run(client, next(self.cells))
        elif what < 0.8:
            await anyio.sleep(self.choose.random() * 0.1)
        elif what < 0.87:
            await self.roll_back(client, self.choose.choice(self.head.way()))
        elif what < 0.95 or not self.saved:
            await self.save(client, self.choose.choice("ab"))
        else:
            await self.restore(client, self.choose.choice(sorted(self.saved)))

    async def look(self, client: Client[Any]) -> None:
        """See all of the namespace, and compare."""
        answer = await self.run(client, SEE)
        while answer.structured_content["state"] == "CRASHED":  # what was killed was killed only now
            answer = await self.run(client, SEE)
        assert self.head is not None
        seen = answer.structured_content["return_value"]
        assert seen == replayed(self.head)[1], text(answer)
        if "items" not in {name for name, *_ in seen[:-2]}:
            await self.run(client, BEGIN)
        self.disturbed = self.deferred = False

    async def call(self, client: Client[Any], tool: str, **arguments: Any) -> Any:
        self.waits = tool
        self.deferred |= tool != "execute"
        async with asyncio.timeout(DEADLINE):
            answer = await call(client, tool, **arguments)
        self.waits = ""
        return answer

    async def run(self, client: Client[Any], code: str) -> Any:
        self.ticks += 1
        source = f"print('at', globals().get('tick'))\ntick = {self.ticks}\n{code}"
        self.asked = Asked(self.ticks, source)
        answer = await self.call(client, "execute", code=source)
        while answer.structured_content is None:  # nothing was run: what was killed was just being started
            assert self.disturbed and "kernel could not start" in text(answer), text(answer)
            self.note(text(answer))
            answer = await self.call(client, "execute", code=source)
        asked, self.asked = self.asked, None
        found = answer.structured_content
        self.note(f"tick {asked.tick}: {code.strip()[:50]!r} -> {found['cell_number']} {found['state']}")
        self.log += [said for said in (found.get("notice"), found["error_message"]) if said]
        assert found["cell_number"] == len(self.journal)
        self.hear(found.get("notice", ""))
        self.place(asked, found["state"], found["stdout"])
        if found["state"] == "CRASHED":
            self.hear(found["error_message"])
        return answer

    async def roll_back(self, client: Client[Any], to: Node) -> None:
        self.may_be = [to]
        answer = await self.call(client, "rollback", to=to.number)
        self.note(f"rollback to {to.number} (tick {to.tick}): {text(answer)}")
        self.moved(answer, [to])

    async def restore(self, client: Client[Any], name: str) -> None:
        there = [self.nodes[tick] for tick in self.saved[name] if tick in self.nodes]
        self.may_be = [*there]
        answer = await self.call(client, "restore_state", name=name)
        self.note(f"restore {name}: {text(answer)}")
        self.moved(answer, there)

    def moved(self, answer: Any, to: list[Node]) -> None:
        if answer.is_error:
            self.hear(text(answer))
            assert "was not loaded" not in text(answer) and "damaged" not in text(answer), text(answer)
            return
        said = re.search(r"as after cell (\d+)", text(answer))
        assert said is not None, text(answer)
        (self.head,) = {node.tick: node for node in to if node.number == int(said[1])}.values()
        self.may_be, self.told = [], set()
        if self.floor not in self.head.way():
            self.floor = None

    async def save(self, client: Client[Any], name: str) -> None:
        head, before = self.head, self.saved.get(name, [])
        assert head is not None
        self.saved[name] = [*before, *(node.tick for node in head.way())]
        answer = await self.call(client, "save_state", name=name)
        self.note(f"save {name}: {text(answer)}")
        if not self.disturbed:
            assert not answer.is_error, text(answer)
            self.saved[name] = [head.tick]
            self.floor = head

    # What came of it

    def hear(self, said: str) -> None:
        for numbers in re.findall(r"(?:[Rr]un again: cells?|not in it: cells?) ([\d, ]+)", said):
            self.told.update(int(number) for number in numbers.replace(",", " ").split())
        self.fresh |= "This is a fresh kernel" in said

    def place(self, asked: Asked, state: str, printed: str, *, said: bool = True) -> None:
        """A run was answered, or its answer was lost and it is found in the journal."""
        number = len(self.journal)
        self.journal.append(Acknowledged(source=asked.source, state=state, printed=printed))
        stood = re.match(r"at (\d+|None)\n", printed)
        if stood is None:
            assert state in ("CRASHED", "INTERRUPTED"), (state, printed)
            if state == "INTERRUPTED":
                self.head = Node(asked.tick, number, asked.source, self.head)
            return
        where = self.nodes[int(stood[1])] if stood[1] != "None" else None
        if said:
            self.went(where)
        node = Node(asked.tick, number, asked.source, where)
        expected = replayed(node)[0]
        if state in ("SUCCESS", "ERROR"):
            assert shortened(printed) == shortened(expected)
            self.journal[-1].printed = expected
            self.nodes[node.tick] = self.head = node
        else:
            whole = uncut(printed, expected)
            assert expected.startswith(whole)
            self.journal[-1].printed = whole
            self.head = node if state == "INTERRUPTED" else where  # what an interrupted one did is not there any more

    def went(self, where: Node | None) -> None:
        """The namespace is found to stand there: rightly so?"""
        begun = [self.head, *self.may_be]
        if where not in begun:
            ways = [each.way() for each in begun if each is not None]
            lost = [lost_on(way, where) for way in ways if where is None or where in way]
            assert lost, f"tick {where.tick if where else None} is on no way to where it stood"
            if where is None:
                assert self.fresh or any(each <= self.told for each in lost), (lost, self.told)
            elif self.deferred:
                assert any(each <= self.told for each in lost), f"lost {lost}, told {sorted(self.told)}"
            else:
                assert self.told in lost, f"lost {lost}, told {sorted(self.told)}"
        if self.floor is not None and self.head is not None and self.floor in self.head.way() and not self.may_be:
            assert where is not None and self.floor in where.way(), "what was known to be on disk is not there"
        self.head, self.told, self.fresh, self.may_be = where, set(), False, []

    async def recovered(self) -> None:
        """A server was started: the run that the one before had under way is INTERRUPTED, or had ended."""
        asked, self.asked = self.asked, None
        runs = await self.recorded()
        if len(runs) > len(self.journal):
            run, printed = runs[-1]
            assert asked is not None and run.source == asked.source
            self.note(f"tick {asked.tick}: its answer was lost, it was {run.state}")
            assert run.state.value in ("INTERRUPTED", "SUCCESS", "ERROR", "CRASHED")
            if run.state.value == "INTERRUPTED":
                assert printed.startswith(self.shown) and "server ended while this cell ran" in said(run)
            self.place(asked, run.state.value, printed, said=False)
        await self.read_journal()

    async def read_journal(self) -> None:
        """Every run that was answered is there, in order, with all it printed."""
        runs = await self.recorded()
        assert [run.count for run, _ in runs] == list(range(1, len(runs) + 1))
        assert [(run.source, run.state.value) for run, _ in runs] == [
            (each.source, each.state) for each in self.journal
        ]
        for (_, printed), each in zip(runs, self.journal, strict=True):
            assert printed == each.printed

    async def recorded(self) -> list[tuple[Run, str]]:
        store, blobs = SqlStore(self.folder), FileBlobs(self.folder / "blobs")
        try:
            notebook = await store.notebooks.find_notebook(LOCAL, "main")
            runs = await store.runs.list_runs(notebook.id) if notebook is not None else []
            return [(run, await printed(blobs, run)) for run in runs]
        finally:
            await store.close()


def lost_on(way: list[Node], where: Node | None) -> set[int]:
    """The cells that ran after that, on this way."""
    return {node.number for node in (way[: way.index(where)] if where is not None else way)}


def shortened(printed: str) -> str:
    """As far as an answer shows it."""
    return printed if len(printed) < 5000 else printed[:3000]


def uncut(printed: str, expected: str) -> str:
    """With the middle that an answer left out."""
    cut = re.search(r"\n\[\.\.\. ([\d,]+) characters left out; whole: \S+ \.\.\.\]\n", printed)
    if cut is None:
        return printed
    head, tail = printed[: cut.start()], printed[cut.end() :]
    return head + expected[len(head) :][: int(cut[1].replace(",", ""))] + tail


async def printed(blobs: FileBlobs, run: Run) -> str:
    texts = [output.bundle["text/plain"] for output in run.outputs if output.type is OutputType.STREAM]
    return "".join([(await blobs.get(text)).decode() if isinstance(text, Blob) else str(text) for text in texts])


def said(run: Run) -> str:
    return "".join(str(output.bundle) for output in run.outputs if output.type is OutputType.ERROR)


def kept(folder: Path) -> str:
    """What the run under way had printed by the time the server was killed, of what is on disk."""
    with contextlib.closing(sqlite3.connect(folder / "quire.db")) as database:
        found = database.execute("SELECT json_extract(output, '$.bundle.\"text/plain\"') FROM shown ORDER BY place")
        return "".join(text for (text,) in found if isinstance(text, str))


def children(pid: int) -> list[int]:
    found: list[int] = []
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, each.read_text().split())
    return [pid for pid in found if alive(pid)]


def supervisors(server: int) -> list[int]:
    """The server's child is the zygote, and that has a supervisor for each kernel."""
    return [supervisor for zygote in children(server) for supervisor in children(zygote)]


def lives(server: int) -> list[int]:
    """Among a supervisor's children, which are its checkpoints too, the live process."""
    found = []
    for pid in (pid for supervisor in supervisors(server) for pid in children(supervisor)):
        with contextlib.suppress(OSError):
            if (
                int(Path(f"/proc/{pid}/oom_score_adj").read_text().split()[0]) == WORKER_OOM_SCORE
            ):  # changed while read: two lines
                found.append(pid)
    return found


def replayed(node: Node) -> tuple[str, Any]:
    """What the cell prints, and the value of its last expression where it is SEE, run here after all before it."""
    space: dict[str, Any] = {"__builtins__": builtins, "__name__": "__main__"}
    out, value = "", None
    drawn = random.getstate()
    try:
        for each in reversed(node.way()):
            with contextlib.redirect_stdout(io.StringIO()) as heard, contextlib.suppress(Exception):
                code = each.source.replace("time.sleep(0.05)", "time.sleep(0)")
                if code.endswith(SEE):
                    exec(code.removesuffix(SEE), space)
                    value = eval(SEE.strip(), space)
                else:
                    exec(code, space)
            out = heard.getvalue()
    finally:
        random.setstate(drawn)
    return out, value
