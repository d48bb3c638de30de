"""A matplotlib backend that draws with Agg and shows by sending the picture.

Chosen by MPLBACKEND before matplotlib loads, so `plt.show()` is ours without patching anything.
Figures still open when a cell ends are shown then, as notebooks do.
"""

from __future__ import annotations

import io
import sys
from typing import Any

from quire.worker.output.display import Display

shows: Display | None = None
"""Set by the kernel: where a shown figure goes."""


def __getattr__(name: str) -> Any:
    # matplotlib asks for these when it loads the backend; only then is it certain to be there
    if name in ("FigureCanvas", "FigureManager"):
        _define()
        return globals()[name]
    raise AttributeError(name)


def _define() -> None:
    from matplotlib.backend_bases import FigureManagerBase
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    class FigureManager(FigureManagerBase):  # type: ignore[misc,unused-ignore]  # matplotlib is optional
        @classmethod
        def pyplot_show(cls, *, block: bool | None = None) -> None:
            flush()

    class FigureCanvas(FigureCanvasAgg):  # type: ignore[misc,unused-ignore]
        manager_class = FigureManager

    globals().update(FigureCanvas=FigureCanvas, FigureManager=FigureManager)


def flush() -> None:
    """Show and close every open pyplot figure, in the order they were made."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or shows is None or not _is_backend():
        return
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        try:
            shows.publish(bundle_of(figure), value=figure)
        finally:
            pyplot.close(figure)


def _is_backend() -> bool:
    matplotlib = sys.modules["matplotlib"]
    return str(dict.get(matplotlib.rcParams, "backend", "")).startswith("module://quire")


def bundle_of(figure: Any) -> dict[str, Any]:
    """The figure as a picture, and its text."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", bbox_inches="tight")
    return {"text/plain": repr(figure), "image/png": picture.getvalue()}
