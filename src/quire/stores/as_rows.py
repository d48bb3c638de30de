"""What Quire speaks of, as rows of a database and back."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict
from typing import Any

from quire.core.model import (
    Attachments,
    Blob,
    Cell,
    CellId,
    CellKind,
    CellState,
    Data,
    DocumentLocation,
    NewCell,
    Notebook,
    NotebookId,
    Origin,
    Output,
    OutputType,
    Policy,
    Principal,
    Run,
    RunId,
)


def ended(run: Run) -> tuple[Any, ...]:
    return (
        run.seconds,
        run.state,
        run.cause,
        json.dumps(run.value),
        json.dumps([_output_row(each) for each in run.outputs]),
        json.dumps(run.imports),
        json.dumps(run.functions),
    )


def output(shown: Output) -> str:
    return json.dumps(_output_row(shown))


def shown(row: str) -> Output:
    return _output(json.loads(row))


def _output_row(output: Output) -> dict[str, Any]:
    return {**vars(output), "bundle": _bundle_row(output.bundle)}


def attachments(given: Attachments) -> str:
    return json.dumps({name: _bundle_row(bundle) for name, bundle in given.items()})


def brought(cell: NewCell) -> tuple[str, str]:
    """What a document brings with a cell."""
    return json.dumps(cell.metadata), attachments(cell.attachments)


def display_id(name: str) -> str:
    """As it stands in the row of a run that showed something under it."""
    return f'"display_id": {json.dumps(name)}'


def _bundle_row(bundle: dict[str, Data]) -> dict[str, Any]:
    return {mime: asdict(data) if isinstance(data, Blob) else data for mime, data in bundle.items()}


def _bundle(row: dict[str, Any]) -> dict[str, Data]:
    return {mime: Blob(**data) if isinstance(data, dict) else data for mime, data in row.items()}


def _output(row: dict[str, Any]) -> Output:
    bundle = _bundle(row["bundle"])
    if "about" not in row:  # as rows were at first
        row = {**row, "about": row["metadata"], "metadata": {}}
    return Output(**{**row, "type": OutputType(row["type"]), "bundle": bundle})


def notebook(row: sqlite3.Row) -> Notebook:
    return Notebook(
        id=NotebookId(row["id"]),
        name=row["name"],
        owner=Principal(row["owner"]),
        runtime=row["runtime"],
        created_at=row["created_at"],
        runs=row["runs"],
        cells=row["cells"],
        metadata=json.loads(row["metadata"]),
        policy=_policy(json.loads(row["policy"])),
        origin=_origin(row) if row["origin"] else None,
        mirror=row["mirror"],
        document=DocumentLocation(**json.loads(row["document"])) if row["document"] else None,
    )


def made(notebook: Notebook) -> tuple[Any, ...]:
    """A new one's row."""
    origin = notebook.origin
    return (
        *(notebook.id, notebook.owner, notebook.name, notebook.runtime, notebook.created_at),
        *(json.dumps(notebook.metadata), json.dumps(asdict(notebook.policy))),
        *((origin.notebook, origin.run, origin.root) if origin else (None, None, None)),
        document(notebook),
    )


def document(notebook: Notebook) -> str:
    """Where its cells are, if they are not in the store."""
    return json.dumps(asdict(notebook.document)) if notebook.document else ""


def _origin(row: sqlite3.Row) -> Origin:
    return Origin(notebook=NotebookId(row["origin"]), run=row["origin_run"], root=NotebookId(row["root"]))


def cell(row: sqlite3.Row) -> Cell:
    return Cell(
        id=CellId(row["id"]),
        number=row["position"],
        kind=CellKind(row["kind"]),
        source=row["source"],
        version=row["version"],
        run=run(row) if row["run"] else None,
        metadata=json.loads(row["metadata"]),
        attachments={name: _bundle(each) for name, each in json.loads(row["attachments"]).items()},
        behind=bool(row["behind"]),
    )


def run(row: sqlite3.Row) -> Run:
    return Run(
        id=RunId(row["run"]),
        cell=CellId(row["run_cell"]),
        count=row["count"],
        source=row["run_source"],
        author=row["author"],
        started_at=row["started_at"],
        seconds=row["seconds"],
        state=CellState(row["state"]),
        cause=row["cause"],
        value=json.loads(row["value"]),
        outputs=tuple(_output(each) for each in json.loads(row["outputs"])),
        imports=tuple(json.loads(row["imports"])),
        functions=tuple(json.loads(row["functions"])),
        parent=RunId(row["parent"]) if row["parent"] else None,
        stale=bool(row["stale"]),
    )


def step(row: sqlite3.Row) -> Run:
    """A run without its source, value and outputs."""
    return Run(
        id=RunId(row["id"]),
        cell=CellId(row["cell"]),
        count=row["count"],
        source="",
        author=row["author"],
        started_at=row["started_at"],
        seconds=row["seconds"],
        state=CellState(row["state"]),
        parent=RunId(row["parent"]) if row["parent"] else None,
        stale=bool(row["stale"]),
    )


def _policy(said: dict[str, Any]) -> Policy:
    network = said.pop("network", None)
    return Policy(**said, network=None if network is None else tuple(network))
