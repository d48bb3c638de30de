"""Installs Quire's capability stubs in a Python kernel, from sources in memory. Runs in the kernel."""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

PACKAGE = "_quire_inside"
_asking = threading.Lock()


class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules of the package from their sources."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in self.sources:
            return importlib.util.spec_from_loader(name, self)
        inside = name == PACKAGE or any(source.startswith(name + ".") for source in self.sources)
        return importlib.util.spec_from_loader(name, self, is_package=True) if inside else None

    def exec_module(self, module: ModuleType) -> None:
        source = self.sources.get(module.__name__, "")
        exec(compile(source, "<" + module.__name__ + ">", "exec"), module.__dict__)  # noqa: S102 - our own source


def arrive(sources: dict[str, str], mark: str) -> None:
    """Only the first call in a process has an effect."""
    if PACKAGE in sys.modules:
        return
    sys.meta_path.append(Sources(sources))
    package: Any = importlib.import_module(PACKAGE)
    texts = importlib.import_module(PACKAGE + ".wire.texts")
    relay: Any = importlib.import_module(PACKAGE + ".worker.capabilities.relay")
    known = importlib.import_module(PACKAGE + ".worker.capabilities.kernel_capabilities")
    errors = importlib.import_module(PACKAGE + ".worker.capabilities.errors")
    interrupts = importlib.import_module(PACKAGE + ".worker.execution.interrupts")
    package.sessions = set()  # clients that answer calls

    def ask(called: Any) -> str:
        if session() not in package.sessions:
            raise errors.CapabilityGone("Capabilities are called by cells that Quire runs, not by a page's own.")
        with _asking:  # stdin carries one input request at a time
            return str(shell().kernel.raw_input(mark + str(texts.dump(called))))

    relay.ask = ask
    package.known = known.KernelCapabilities(interrupts.Interrupts(), shell().user_ns)


def shell() -> Any:
    from IPython import get_ipython

    return get_ipython()


def session() -> Any:
    """The session of the client whose code runs now."""
    return shell().kernel.get_parent().get("header", {}).get("session")


def offer(catalog: str) -> str:
    package: Any = sys.modules[PACKAGE]
    package.sessions.add(session())
    package.known.apply(json.loads(catalog))
    return json.dumps({"offered": True})
