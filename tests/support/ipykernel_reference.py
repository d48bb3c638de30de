"""What ipykernel, driven by nbclient, makes of a notebook, and how that is compared with what Quire makes of it.

`python -m tests.support.ipykernel_reference [NAME ...]` prints every difference over the corpus; `--twice` compares
ipykernel with itself, which finds what the masks miss.
"""

from __future__ import annotations

import asyncio
import base64
import difflib
import json
import os
import re
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from quire import compose
from quire.core.app import App
from quire.core.model import LOCAL, CellKind
from quire.notebook_format import ipynb
from quire.settings import load
from tests import corpus
from tests.corpus import CorpusCell

CELL_TIMEOUT = 60  # seconds
Document = dict[str, Any]

# ---- the two ways to run a notebook


PATIENTLY = """
def _pause():
    import time
    get_ipython().events.register("post_execute", lambda: time.sleep(0.2))
_pause()
del _pause
"""


def through_ipykernel(cells: Sequence[CorpusCell], *, patiently: bool = False) -> Document:
    """The notebook as nbclient leaves it, run by an ipykernel of its own in a folder of its own; `patiently` with a
    pause at the end of each cell."""
    with tempfile.TemporaryDirectory(prefix="reference-") as folder:
        work, first = Path(folder, "work"), Path(folder, "ipython/profile_default/startup/pause.py")
        work.mkdir()
        if patiently:
            first.parent.mkdir(parents=True)
            first.write_text(PATIENTLY)
        client = NotebookClient(
            nbformat.from_dict(document(cells)),
            timeout=CELL_TIMEOUT,
            allow_errors=True,
            resources={"metadata": {"path": str(work)}},
            km=AsyncKernelManager(transport="ipc", connection_file=f"{folder}/kernel.json"),
        )
        # what ipykernel captures it also writes to its own stdout
        done = client.execute(env=environment(folder), cleanup_kc=True, stdout=DEVNULL, stderr=DEVNULL)
        return masked(json.loads(nbformat.writes(done)), str(work))


async def through_quire(app: App, name: str, cells: Sequence[CorpusCell]) -> Document:
    """The same notebook run and exported by Quire."""
    notebook = await app.notebooks.create(LOCAL, name)
    for cell in cells:
        if cell.markdown:
            await app.cells.add(notebook, cell.source, CellKind.MARKDOWN)
            continue
        app.kernels.slots.get(notebook).lineage.enter_burst()  # as where all cells of a notebook are run
        active = await app.runs.start(notebook, cell.source, timeout=CELL_TIMEOUT)
        await app.runs.wait(active, CELL_TIMEOUT + 30)
    done = [await app.outputs.load(cell) for cell in await app.cells.list_cells(notebook)]
    return masked(json.loads(ipynb.dumps(notebook, done)), app.workspace(notebook))


def environment(folder: str) -> dict[str, str]:
    """What a kernel inherits: nothing of pytest (ipykernel then captures less) and no IPython profile."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "IPYTHONDIR": f"{folder}/ipython", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def document(cells: Sequence[CorpusCell]) -> Document:
    written = [
        nbformat.v4.new_markdown_cell(cell.source) if cell.markdown else nbformat.v4.new_code_cell(cell.source)
        for cell in cells
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return dict(nbformat.v4.new_notebook(cells=written, metadata={"kernelspec": kernel}))


# ---- masks: what differs from one run of ipykernel to the next

_MASKS: tuple[tuple[str, str], ...] = (
    (r"\r\n", "\n"),
    (r"/tmp/ipykernel_\d+/\d+\.py|<cell \d+, run \d+>|<ipython-input-[^>]*>", "<cell>"),
    (r"\(\d+\.py, line (\d+)\)", r"(<cell>, line \1)"),
    (r"0x[0-9a-fA-F]{6,}|(?<= object at )[0-9a-f]{9,}", "0x…"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
    (r"\b[0-9a-f]{32}\b", "<id>"),
    (r"\bT_[0-9a-f]{5}(?=[_\"])", "T_<id>"),  # a pandas Styler's
    (r"(?<=[#\"][mp])[0-9a-f]{10}(?=[\")])", "<id>"),  # in a matplotlib SVG
    (r"\[\d\d:\d\d<[^\]]*\]", "[<rate>]"),  # tqdm
    (r"(?<![\w.])\d+(\.\d+)?(e[+-]?\d+)? ?(ns|µs|μs|us|ms|s|min)\b( ± [^()]*?(?= per loop))?", "<time>"),
    (r"\(mean ± std\. dev\. of \d+ runs?, [\d,]+ loops? each\)", "(<loops>)"),
    (r"The slowest run took .* cached\.\n", ""),
    (r"\bTask-\d+", "Task-<n>"),
    (r"\bpid[= ]\d+", "pid <n>"),
    (r"<dc:date>[^<]*</dc:date>", "<dc:date/>"),  # of an SVG
)


def masked(document: Document, folder: str) -> Document:
    """The document with what changes from run to run replaced, everywhere in its outputs."""
    for cell in document["cells"]:
        if "outputs" in cell:
            cell["outputs"] = _mask(cell["outputs"], os.path.realpath(folder))
    return document


def _mask(value: Any, folder: str) -> Any:
    match value:
        case str():
            return mask(value.replace(folder, "<cwd>"))
        case list():
            return [_mask(each, folder) for each in value]
        case dict():
            return {key: each if key == "image/png" else _mask(each, folder) for key, each in value.items()}
    return value


def mask(text: str) -> str:
    for pattern, replacement in _MASKS:
        text = re.sub(pattern, replacement, text)
    return text


# ---- the comparison


def differences(cells: Sequence[CorpusCell], reference: Document, ours: Document) -> list[str]:
    """What is not the same, each a readable paragraph; none where Quire did as ipykernel does."""
    found = []
    for number, (cell, theirs, mine) in enumerate(zip(cells, reference["cells"], ours["cells"], strict=True)):
        if cell.markdown:
            continue
        there = [f"execution count: {theirs['execution_count']} there, {mine['execution_count']} here"]
        wrong = there if theirs["execution_count"] != mine["execution_count"] else []
        if not cell.differs:
            wrong += _unlike(summary(theirs["outputs"]), summary(mine["outputs"]))
        if wrong:
            found.append("\n".join([f"cell {number}:", *_indented(cell.source), *wrong]))
    return found


def summary(outputs: list[Document]) -> list[tuple[str, str]]:
    """The outputs as pairs of what each is and what it says, in order.

    What two streams print between two other outputs is told by stream: which of them ipykernel sends first is chance.
    """
    told: list[tuple[str, str]] = []
    printed: dict[str, str] = {}

    def tell_printed() -> None:
        told.extend((name, printed[name]) for name in sorted(printed) if printed[name])
        printed.clear()

    for output in outputs:
        if output["output_type"] == "stream":
            printed[output["name"]] = printed.get(output["name"], "") + _text(output["text"])
            continue
        tell_printed()
        told += _shown(output)
    tell_printed()
    return told


def _shown(output: Document) -> list[tuple[str, str]]:
    kind = output["output_type"]
    if kind == "error":
        return [("error", f"{output['ename']}: {output['evalue']}")]
    data = output["data"]
    told = [(kind, " ".join(sorted(data)))]
    told += [(f"{kind} {mime}", _said(mime, data[mime])) for mime in sorted(data)]
    if output["metadata"]:
        told.append((f"{kind} metadata", json.dumps(output["metadata"], sort_keys=True)))
    return told


def _said(mime: str, data: Any) -> str:
    """What of a MIME type's data is compared: of a picture its size, of the rest all there is."""
    if mime == "image/png":
        header = base64.b64decode(_text(data))[:24]
        return "{} x {}".format(*struct.unpack(">II", header[16:])) if len(header) == 24 else repr(header)
    if not isinstance(data, str | list) or mime.endswith("json"):
        return json.dumps(data, sort_keys=True)
    return _text(data)


def _text(data: str | list[str]) -> str:
    return data if isinstance(data, str) else "".join(data)


def _unlike(theirs: list[tuple[str, str]], mine: list[tuple[str, str]]) -> list[str]:
    if theirs == mine:
        return []
    if [what for what, _ in theirs] != [what for what, _ in mine]:
        return ["outputs:", *_changed([f"{what}: {_short(said)}" for what, said in theirs],
                                      [f"{what}: {_short(said)}" for what, said in mine])]  # fmt: skip
    wrong = []
    for (what, right), (_, said) in zip_longest(theirs, mine):
        if right != said:
            wrong += [f"{what}:", *_changed(right.splitlines(keepends=True), said.splitlines(keepends=True))]
    return wrong


def _changed(theirs: list[str], mine: list[str]) -> list[str]:
    """The lines that differ, with `-` those of ipykernel and `+` those of Quire."""
    lines = difflib.unified_diff([_short(line) for line in theirs], [_short(line) for line in mine], n=1)
    said = [f"  {line[0]} {line[1:]!r}"[:400] for line in lines if not line.startswith(("---", "+++", "@@"))]
    return said if len(said) <= 30 else [*said[:30], f"    … {len(said) - 30} lines more"]


def _short(text: str) -> str:
    return text if len(text) <= 1000 else f"{text[:500]} … {text[-400:]}"


def _indented(source: str) -> list[str]:
    return [f"  > {line}" for line in source.splitlines()[:12]]


# ---- by hand


async def _all(names: list[str], twice: bool) -> int:
    wrong = 0
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:

        def run(name: str) -> Any:
            return loop.run_in_executor(pool, through_ipykernel, corpus.read(name))

        references = {name: run(name) for name in names}
        again = {name: run(name) for name in names if twice}
        async with compose.app(load({"store_data_dir": folder}, environ={})) as app:
            for name in names:
                cells = corpus.read(name)
                ours = await (again[name] if twice else through_quire(app, name, cells))
                found = differences(cells, await references[name], ours)
                wrong += len(found)
                print(f"== {name}: {len(found)} of {len(cells)} cells differ", *found, sep="\n", flush=True)
    print(f"{wrong} cells differ")
    return 1 if wrong else 0


def main(arguments: list[str], run: Callable[..., int] = lambda *given: asyncio.run(_all(*given))) -> int:
    names = [name for name in arguments if not name.startswith("-")]
    return run(names or corpus.NAMES, "--twice" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
