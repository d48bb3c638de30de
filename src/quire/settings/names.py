"""How each setting is called: in quire.toml, as a flag, a variable and a keyword, and in version 0.1."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from quire.core.phrases import nearest
from quire.settings.model import Section, Settings

_log = logging.getLogger("quire")

PREFIX = "QUIRE_"


class BadSetting(Exception):
    """A setting that does not exist or cannot have that value; the message names it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """One setting: where it is, what it is, and its name in version 0.1, which had no sections."""

    section: str
    key: str
    old: str
    field: FieldInfo

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"

    @property
    def keyword(self) -> str:
        return f"{self.section}_{self.key}"

    @property
    def description(self) -> str:
        return self.field.description or ""

    @property
    def is_secret(self) -> bool:
        return "secret" in self.key or "token" in self.key

    def value(self, settings: Settings) -> Any:
        return getattr(getattr(settings, self.section), self.key)


def section_class(section: str) -> type[Section]:
    found = Settings.model_fields[section].annotation
    assert isinstance(found, type) and issubclass(found, Section)
    return found


def _setting(section: str, key: str, field: FieldInfo) -> Setting:
    assert isinstance(field.json_schema_extra, dict)
    return Setting(section=section, key=key, old=str(field.json_schema_extra["old"]), field=field)


SECTIONS = tuple(Settings.model_fields)
SETTINGS = tuple(
    _setting(section, key, field) for section in SECTIONS for key, field in section_class(section).model_fields.items()
)
"""All settings, in the order of the documentation."""


class Spelling:
    """How one kind of source writes the names of settings."""

    def __init__(self, new: Callable[[Setting], str], old: Callable[[Setting], str]) -> None:
        self.new = new
        self.old = old

    def find(self, spelled: str, where: str) -> tuple[Setting, bool]:
        """The setting, and whether this is its old name, which is logged. Raises BadSetting with the nearest name."""
        for setting in SETTINGS:
            if spelled == self.new(setting):
                return setting, False
        by_old = {self.old(setting): setting for setting in SETTINGS}
        if spelled in by_old:
            _log.warning("%s (%s) is now %s; the old name still works.", spelled, where, self.new(by_old[spelled]))
            return by_old[spelled], True
        near = nearest(spelled, [*by_old, *map(self.new, SETTINGS)])
        advice = f" The nearest is {self.new(by_old[near]) if near in by_old else near}." if near is not None else ""
        raise BadSetting(f"There is no setting {spelled!r} ({where}).{advice} `quire config show` lists all.")


def _flag(keyword: str) -> str:
    return f"--{keyword.replace('_', '-')}"


KEYS = Spelling(lambda setting: setting.name, lambda setting: setting.old)
KEYWORDS = Spelling(lambda setting: setting.keyword, lambda setting: setting.old)
FLAGS = Spelling(lambda setting: _flag(setting.keyword), lambda setting: _flag(setting.old))
VARIABLES = Spelling(
    lambda setting: f"{PREFIX}{setting.keyword.upper()}", lambda setting: f"{PREFIX}{setting.old.upper()}"
)
