"""Files and folders of the Jupyter server that Quire runs in, through its contents manager."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from jupyter_server.utils import ensure_async
from tornado.web import HTTPError

from quire.clients.jupyter.documents.contents import Model, not_found_message, validate_model
from quire.clients.jupyter.ports import JupyterError, Missing


class LocalContents:
    def __init__(self, serverapp: Any) -> None:
        self._serverapp = serverapp

    async def read(self, path: str, *, content: bool = True) -> Model:
        try:
            await self._refuse_hidden(path)
            model = await ensure_async(self._manager.get(path, content=content))
        except HTTPError as error:
            raise contents_error(path, error) from None
        return validate_model(to_json(model), path)

    async def write(self, path: str, model: Model) -> Model:
        try:
            await self._refuse_hidden(path)
            return validate_model(to_json(await ensure_async(self._manager.save(model, path))), path)
        except HTTPError as error:
            raise contents_error(path, error) from None

    @property
    def _manager(self) -> Any:
        return self._serverapp.contents_manager

    async def _refuse_hidden(self, path: str) -> None:
        if path and not self._manager.allow_hidden and await ensure_async(self._manager.is_hidden(path)):
            raise HTTPError(404)


def contents_error(path: str, error: HTTPError) -> JupyterError:
    if error.status_code == 404:
        return Missing(not_found_message(path, "this Jupyter server"))
    why = error.log_message or error.reason or ""
    return JupyterError(f"This Jupyter server refused {path!r} ({error.status_code}): {why}")


def to_json(model: Any) -> Any:
    """Plain JSON values, as the API sends them. Contents managers return objects of their own types."""
    return json.loads(json.dumps(model, default=json_default))


def json_default(value: Any) -> str:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)
