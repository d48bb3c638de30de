"""A contents manager that writes nothing while there is a file `full` beside its root: a disk that is full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from tornado.web import HTTPError


class Refusing(AsyncLargeFileManager):
    async def save(self, model: dict[str, Any], path: str = "") -> dict[str, Any]:
        if (Path(self.root_dir).parent / "full").exists():
            raise HTTPError(507, "No space left on device")
        saved: dict[str, Any] = await super().save(model, path)
        return saved
