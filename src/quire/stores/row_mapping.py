"""Objects of the model as rows of the database, and back."""

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


def notebook_to_row(notebook: Notebook) -> tuple[Any, ...]:
    """Return the values of a new notebook's row."""
    origin = notebook.origin
    return (
        *(notebook.id, notebook.owner, notebook.name, notebook.runtime, notebook.created_at),
        *(json.dumps(notebook.metadata), json.dumps(asdict(notebook.policy))),
        *((origin.notebook, origin.run, origin.root) if origin else (None, None, None)),
        document_to_text(notebook),
    )


def document_to_text(notebook: Notebook) -> str:
    """Return the location of the notebook's document, "" if its cells are in the store."""
    return json.dumps(asdict(notebook.document)) if notebook.document else ""


def notebook_from_row(row: sqlite3.Row) -> Notebook:
    return Notebook(
        id=NotebookId(row["id"]),
        name=row["name"],
        owner=Principal(row["owner"]),
        runtime=row["runtime"],
        created_at=row["created_at"],
        runs=row["runs"],
        cells=row["cells"],
        metadata=json.loads(row["metadata"]),
        policy=_policy_from_dict(json.loads(row["policy"])),
        origin=_origin_from_row(row) if row["origin"] else None,
        mirror=row["mirror"],
        document=DocumentLocation(**json.loads(row["document"])) if row["document"] else None,
    )


def _policy_from_dict(policy: dict[str, Any]) -> Policy:
    network = policy.pop("network", None)
    return Policy(**policy, network=None if network is None else tuple(network))


def _origin_from_row(row: sqlite3.Row) -> Origin:
    return Origin(notebook=NotebookId(row["origin"]), run=row["origin_run"], root=NotebookId(row["root"]))


def extras_to_row(cell: NewCell) -> tuple[str, str]:
    """Return the metadata and the attachments of a new cell."""
    return json.dumps(cell.metadata), _attachments_to_text(cell.attachments)


def _attachments_to_text(attachments: Attachments) -> str:
    return json.dumps({name: _bundle_to_dict(bundle) for name, bundle in attachments.items()})


def cell_from_row(row: sqlite3.Row) -> Cell:
    attachments = json.loads(row["attachments"])
    return Cell(
        id=CellId(row["id"]),
        number=row["position"],
        kind=CellKind(row["kind"]),
        source=row["source"],
        version=row["version"],
        run=run_from_row(row) if row["run"] else None,
        metadata=json.loads(row["metadata"]),
        attachments={name: _bundle_from_dict(bundle) for name, bundle in attachments.items()},
        behind=bool(row["behind"]),
    )


def run_end_to_row(run: Run) -> tuple[Any, ...]:
    """Return the values of a run's row that its end changes."""
    return (
        run.seconds,
        run.state,
        run.cause,
        json.dumps(run.value),
        json.dumps([_output_to_dict(output) for output in run.outputs]),
        json.dumps(run.imports),
        json.dumps(run.functions),
    )


def run_from_row(row: sqlite3.Row) -> Run:
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
        outputs=tuple(_output_from_dict(output) for output in json.loads(row["outputs"])),
        imports=tuple(json.loads(row["imports"])),
        functions=tuple(json.loads(row["functions"])),
        parent=RunId(row["parent"]) if row["parent"] else None,
        stale=bool(row["stale"]),
    )


def output_to_text(output: Output) -> str:
    return json.dumps(_output_to_dict(output))


def output_from_text(text: str) -> Output:
    return _output_from_dict(json.loads(text))


def display_id_in_row(display_id: str) -> str:
    """Return the text that the row of a run contains if it has an output with this display id."""
    return f'"display_id": {json.dumps(display_id)}'


def _output_to_dict(output: Output) -> dict[str, Any]:
    return {**vars(output), "bundle": _bundle_to_dict(output.bundle)}


def _output_from_dict(output: dict[str, Any]) -> Output:
    bundle = _bundle_from_dict(output["bundle"])
    if "about" not in output:  # written by the first versions
        output = {**output, "about": output["metadata"], "metadata": {}}
    return Output(**{**output, "type": OutputType(output["type"]), "bundle": bundle})


def _bundle_to_dict(bundle: dict[str, Data]) -> dict[str, Any]:
    return {mime: asdict(data) if isinstance(data, Blob) else data for mime, data in bundle.items()}


def _bundle_from_dict(bundle: dict[str, Any]) -> dict[str, Data]:
    return {mime: Blob(**data) if isinstance(data, dict) else data for mime, data in bundle.items()}
