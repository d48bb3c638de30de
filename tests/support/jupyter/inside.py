"""A server extension that runs behaviours of the tests in the server's own process."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from quire.clients.jupyter.client import local_client
from tests.support.jupyter.places import Place, beside
from tests.support.jupyter.servers import DEADLINE, JupyterServer


class BehaviourHandler(APIHandler):
    @web.authenticated
    async def post(self) -> None:
        told = json.loads(self.request.body)
        behaviour = getattr(importlib.import_module(told["module"]), told["name"])
        try:
            await asyncio.wait_for(tried(self.serverapp, behaviour, told), DEADLINE * 0.9)
            failure = ""
        except BaseException:
            failure = traceback.format_exc()
        self.finish(json.dumps({"failure": failure}))


async def tried(serverapp: Any, behaviour: Any, told: dict[str, Any]) -> None:
    server = JupyterServer(
        folder=Path(told["folder"]), token=told["token"], port=told["port"], collaboration=told["collaboration"]
    )
    server.process = cast(Any, SimpleNamespace(pid=os.getpid()))
    jupyter = local_client(serverapp, timeout=DEADLINE)
    try:
        async with beside(server) as person:
            await behaviour(
                Place(jupyter=jupyter, person=person, server=server, live=server.collaboration, serverapp=serverapp)
            )
    finally:
        await jupyter.close()


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "tests.support.jupyter.inside"}]


def _load_jupyter_server_extension(serverapp: Any) -> None:
    route = url_path_join(serverapp.web_app.settings["base_url"], "behaviour")
    serverapp.web_app.add_handlers(".*$", [(route, BehaviourHandler)])
