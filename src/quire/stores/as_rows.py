"""What Quire speaks of, as rows of a database and back."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict
from typing import Any

from quire.core.model import (
    Blob,
    Cell,
    CellId,
    CellKind,
    CellState,
    Data,
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
    row = asdict(output)
    row["bundle"] = {mime: asdict(data) if isinstance(data, Blob) else data for mime, data in output.bundle.items()}
    return row


def _output(row: dict[str, Any]) -> Output:
    bundle: dict[str, Data] = {
        mime: Blob(**data) if isinstance(data, dict) else data for mime, data in row["bundle"].items()
    }
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
        policy=Policy(**json.loads(row["policy"])),
        origin=_origin(row) if row["origin"] else None,
    )


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
