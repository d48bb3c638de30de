"""Quire: a place for AI agents to run code that is never lost."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from quire.compose import open as open
    from quire.core.notebooks.images import Image as Image
    from quire.core.notebooks.images import ImageBase as ImageBase
    from quire.core.notebooks.images import ImageReference as ImageReference

__all__ = ["Image", "ImageBase", "ImageReference", "__version__", "open"]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """What a Jupyter server asks a package for that is enabled in it."""
    extension = import_module("quire.extension")  # which is above all that imports this package
    return [{"module": extension.__name__, "app": extension.QuireExtension}]


def __getattr__(name: str) -> Any:
    # loaded when asked for: `import quire` alone costs nothing
    if name == "open":
        from quire import compose

        return compose.open
    if name in ("Image", "ImageBase", "ImageReference"):
        from quire.core.notebooks import images

        return getattr(images, name)
    raise AttributeError(f"module 'quire' has no attribute {name!r}")
