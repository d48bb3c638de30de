"""What a block of code prints and shows, kept instead."""

from __future__ import annotations

import io
import sys
from typing import Any, cast

from quire.worker import figures


class RichOutput:
    """Something that was shown."""

    def __init__(
        self,
        data: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        transient: dict[str, Any] | None = None,
        update: bool = False,
    ) -> None:
        self.data = data or {}
        self.metadata = metadata or {}
        self.transient = transient or {}
        self.update = update

    def display(self) -> None:
        from quire.worker.shim.displays import publish_display_data

        publish_display_data(self.data, self.metadata, transient=self.transient, update=self.update)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self.data, self.metadata


class CapturedIO:
    """`.stdout`, `.stderr`, `.outputs`; `.show()` gives them out again."""

    def __init__(self, stdout: Any, stderr: Any, outputs: list[dict[str, Any]] | None = None) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._outputs = outputs if outputs is not None else []

    @property
    def stdout(self) -> str:
        return self._stdout.getvalue() if self._stdout else ""

    @property
    def stderr(self) -> str:
        return self._stderr.getvalue() if self._stderr else ""

    @property
    def outputs(self) -> list[RichOutput]:
        return [RichOutput(**each) for each in self._outputs]

    def show(self) -> None:
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        for each in self.outputs:
            each.display()

    __call__ = show

    def __str__(self) -> str:
        return self.stdout


CapturedIO.__module__ = RichOutput.__module__ = "IPython.utils.capture"  # as notebooks show them


class _Kept:
    """In the place of a shell's display_pub."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *args: Any,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **more: Any,
    ) -> None:
        self.outputs.append({"data": data, "metadata": metadata, "transient": transient, "update": update})

    def clear_output(self, wait: bool = False) -> None:
        self.outputs.clear()


class capture_output:
    """`with capture_output() as captured:`"""

    def __init__(self, stdout: bool = True, stderr: bool = True, display: bool = True) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.display = display
        self._before: dict[str, Any] = {}
        self._shell: Any = None
        self._figures: Any = None

    def __enter__(self) -> CapturedIO:
        from quire.worker.shim.shell import current

        kept: dict[str, Any] = {}
        for name, wanted in (("stdout", self.stdout), ("stderr", self.stderr)):
            if wanted:
                self._before[name] = getattr(sys, name)
                kept[name] = io.StringIO()
                setattr(sys, name, kept[name])
        outputs = None
        self._shell = current() if self.display else None
        if self._shell is not None:
            self._before["display_pub"] = self._shell.display_pub
            self._shell.display_pub = taken = _Kept()
            outputs = taken.outputs
            self._figures, figures.shows = figures.shows, cast(Any, taken)
        return CapturedIO(kept.get("stdout"), kept.get("stderr"), outputs)

    def __exit__(self, *raised: object) -> None:
        if self._shell is not None:
            figures.shows = self._figures
        for name, value in self._before.items():
            setattr(self._shell if name == "display_pub" else sys, name, value)
        self._before = {}
