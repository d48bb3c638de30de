"""Choose the walker for this system."""

from __future__ import annotations

import os

from quire.safe_open.by_descriptor import FdWalker
from quire.safe_open.by_name import PathWalker
from quire.safe_open.folder import Walker


def new_walker(*, cross_mounts: bool = False) -> Walker:
    """With `cross_mounts` a folder below may be on another file system than the root. PathWalker never allows that."""
    by_descriptor = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_DIRECTORY")
    return FdWalker(cross_mounts=cross_mounts) if by_descriptor else PathWalker()
