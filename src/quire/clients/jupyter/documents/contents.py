"""Files and folders of a Jupyter server through its contents API."""

from __future__ import annotations

from typing import Any, Protocol

from quire.clients.jupyter.ports import Entry, JupyterError, Missing, SpecInfo
from quire.clients.jupyter.server.http_client import HttpClient
from quire.clients.jupyter.server.paths import normalize_path

Model = dict[str, Any]
"""A file or folder in the format of the contents API."""


class Contents(Protocol):
    """Paths must be normalized with `normalize_path`."""

    async def read(self, path: str, *, content: bool = True) -> Model:
        """Raises Missing."""
        ...

    async def write(self, path: str, model: Model) -> Model:
        """Write a whole file or create a folder. Returns the server's model of it."""
        ...


class RemoteContents:
    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def read(self, path: str, *, content: bool = True) -> Model:
        query = {"content": str(int(content))}
        missing = not_found_message(path, f"the Jupyter server at {self._http.url}")
        return validate_model(
            await self._http.request_json("GET", f"api/contents/{path}", query=query, missing=missing), path
        )

    async def write(self, path: str, model: Model) -> Model:
        missing = f"The folder of {path!r} is not there."
        return validate_model(
            await self._http.request_json("PUT", f"api/contents/{path}", body=model, missing=missing), path
        )


def not_found_message(path: str, where: str) -> str:
    new = ', or use_notebook with mode="create" makes a new one' if path.endswith(".ipynb") else ""
    return f"{path or '/'!r} was not found on {where}. list_files shows what there is{new}."


def validate_model(model: Any, path: str) -> Model:
    if not isinstance(model, dict) or not isinstance(model.get("type"), str) or not isinstance(model.get("path"), str):
        raise JupyterError(f"The server's answer about {path!r} is not what the contents API says.")
    return model


async def list_folder(contents: Contents, path: str) -> list[Entry]:
    """The contents of a folder, sorted by path."""
    folder = normalize_path(path)
    model = await contents.read(folder)
    if model["type"] != "directory" or not isinstance(model.get("content"), list):
        raise Missing(f"{folder!r} is no folder but a {model['type']}.")
    return sorted(map(file_entry, model["content"]), key=lambda entry: entry.path)


def file_entry(model: Model) -> Entry:
    size = model.get("size")
    return Entry(
        path=str(model.get("path", "")),
        kind=str(model.get("type", "file")),
        size=size if isinstance(size, int) else None,
        modified=str(model.get("last_modified") or ""),
    )


async def check_notebook(contents: Contents, path: str) -> Model:
    """The model of a notebook without its content. Raises Missing, and JupyterError if it is not a notebook."""
    model = await contents.read(path, content=False)
    if model["type"] != "notebook":
        raise JupyterError(f"{path!r} is no notebook but a {model['type']}; name a file that ends in .ipynb.")
    return model


async def create_notebook(contents: Contents, path: str, spec: SpecInfo | None) -> str:
    """Create an empty notebook and missing parent folders. Returns its normalized path."""
    place = normalize_path(path)
    if not place.endswith(".ipynb"):
        raise JupyterError(f"A notebook's name ends in .ipynb; {path!r} does not.")
    if await exists(contents, place):
        raise JupyterError(
            f"There is something at {place!r} already: open it (use_notebook with mode='connect'), or choose another "
            "name."
        )
    await make_folders(contents, place)
    metadata: dict[str, Any] = {}
    if spec is not None:
        metadata["kernelspec"] = {"name": spec.name, "display_name": spec.display_name, "language": spec.language}
        metadata["language_info"] = {"name": spec.language}
    content = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": []}
    await contents.write(place, {"type": "notebook", "format": "json", "content": content})
    return place


async def make_folders(contents: Contents, path: str) -> None:
    parts = path.split("/")[:-1]
    for length in range(1, len(parts) + 1):
        folder = "/".join(parts[:length])
        if not await exists(contents, folder):
            await contents.write(folder, {"type": "directory"})


async def exists(contents: Contents, path: str) -> bool:
    try:
        await contents.read(path, content=False)
    except Missing:
        return False
    return True
