"""ES modules out of the workspace and the mounts: a module's name has a digest of its text, so an edited one is new."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re

from quire.runtimes.wasm.host.javascript.files import Files, NotAllowed

_LARGEST = 4 << 20  # bytes of a module
_VERSIONED = re.compile(r"\?v=[0-9a-f]{8}$")


class Modules:
    def __init__(self, files: Files) -> None:
        self._files = files
        self._read: dict[str, str] = {}  # the text behind the name that was given last: it is wanted at once, or never
        self.known: dict[str, str] = {}  # texts for tracebacks

    def name(self, base: str, wanted: str) -> str:
        """The one name of what `wanted` means in the module, or the cell, `base`. Raises NotAllowed."""
        if _VERSIONED.search(wanted):
            return wanted
        path = wanted.partition("?")[0]
        if not path.startswith(("./", "../", "/")):
            raise NotAllowed(
                f"There is no package {wanted[:200]!r}: modules are files of the workspace,"
                f" imported as './{path[:100]}.js'"
            )
        above = posixpath.dirname(_VERSIONED.sub("", base)) if _VERSIONED.search(base) else ""
        normal = self._files.normal(posixpath.join(above, path))
        try:
            text = self._files.read(normal, _LARGEST).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise NotAllowed(f"{normal} is not UTF-8 text") from None
        name = f"{normal}?v={hashlib.sha256(text.encode()).hexdigest()[:8]}"
        self._read = {name: text}
        return name

    def source(self, name: str) -> str:
        """What is evaluated as that module. Raises NotAllowed."""
        text = self._read.pop(name, None)
        if text is None:
            raise NotAllowed(f"{name[:200]} was not found by its path")
        if _VERSIONED.sub("", name).endswith(".json"):
            try:
                return f"export default JSON.parse({json.dumps(json.dumps(json.loads(text)))});"
            except ValueError as error:
                raise NotAllowed(f"{_VERSIONED.sub('', name)} is not JSON: {error}") from None
        if len(self.known) < 200:
            self.known[name] = text[:100_000]
        return text
