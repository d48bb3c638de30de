"""What the component is made of: one function in, one function out, both of strings."""

from __future__ import annotations

import os

import wit_world  # type: ignore[import-not-found]  # made of guest.wit when the component is built

from quire.runtimes.wasm.guest import library

library.collect()

from quire.runtimes.wasm.guest import absent, asynchronous, kernel, zones  # noqa: E402 - imported from what was collected

absent.install()
asynchronous.install()
zones.install(os.path.dirname(__file__))
kernel.warm_up()
_kernel = kernel.Kernel(wit_world.host)
library.load_what_is_often_used()
library.finish()


class WitWorld:
    """As componentize-py wants it."""

    def handle(self, request: str) -> str:
        return _kernel.handle(request)
