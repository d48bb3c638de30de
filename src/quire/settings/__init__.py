"""Settings: what there is (`model`), how it is called (`names`), and where it is from (`sources`)."""

from __future__ import annotations

from quire.settings.model import Settings
from quire.settings.names import BadSetting
from quire.settings.sources import config_file, load
from quire.settings.types import DEFAULT_TOOLSETS, TOOLSETS

__all__ = ["DEFAULT_TOOLSETS", "TOOLSETS", "BadSetting", "Settings", "config_file", "load"]
