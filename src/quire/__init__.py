"""Quire: a place for AI agents to run code that is never lost."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from quire.compose import open as open
    from quire.core.images import Image as Image
    from quire.core.images import ImageBase as ImageBase
    from quire.core.images import ImageReference as ImageReference

__all__ = ["Image", "ImageBase", "ImageReference", "__version__", "open"]


def __getattr__(name: str) -> Any:
    # loaded when asked for: `import quire` alone costs nothing
    if name == "open":
        from quire import compose

        return compose.open
    if name in ("Image", "ImageBase", "ImageReference"):
        from quire.core import images

        return getattr(images, name)
    raise AttributeError(f"module 'quire' has no attribute {name!r}")
