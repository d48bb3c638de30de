"""Settings from the file, the environment and flags, the later over the earlier."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import ValidationError

from quire.settings.model import Settings
from quire.settings.names import FLAGS, KEYS, KEYWORDS, PREFIX, SECTIONS, VARIABLES, BadSetting, Setting

CONFIG = "QUIRE_CONFIG"  # names the file; not a setting itself

_Found = tuple[Setting, bool, Any, str]
"""A setting, whether it was given under its old name, its value, and where that is from."""


@dataclass(frozen=True, kw_only=True)
class Resolved:
    settings: Settings
    origins: Mapping[str, str]
    """Where each setting that is not at its default is from, by name."""


def load(
    given: Mapping[str, Any] | None = None, *, environ: Mapping[str, str] | None = None, config: Path | None = None
) -> Settings:
    """Settings from file, environment and `given`. Raises BadSetting.

    `given` has flags (`--limits-max-cells`), keywords (`limits_max_cells`) or sections (`limits={"max_cells": 5}`).
    None means not given."""
    return resolve(given, environ=environ, config=config).settings


def resolve(
    given: Mapping[str, Any] | None = None, *, environ: Mapping[str, str] | None = None, config: Path | None = None
) -> Resolved:
    """As `load`, with where each value is from."""
    environ = os.environ if environ is None else environ
    file = config_file(config, environ)
    must_exist = config is not None or CONFIG in environ
    found: list[_Found] = []
    for source in (_from_file(file, must_exist), _from_environment(environ), _from_call(given or {})):
        found += sorted(source, key=lambda one: not one[1])  # within a source the new name is over the old one
    settings = validate({setting: value for setting, _, value, _ in found})
    return Resolved(settings=settings, origins={setting.name: origin for setting, _, _, origin in found})


def parse_file(text: str, path: Path) -> Settings:
    """The settings of a file with this text, alone. Raises BadSetting."""
    return validate({setting: value for setting, _, value, _ in _from_text(text, path)})


def config_file(given: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """The settings file: the one given, the one the environment names, or the user's own.

    None in the working folder is read unasked: a cloned project must not choose what runs here."""
    if given is not None:
        return given
    if CONFIG in environ:
        return Path(environ[CONFIG])
    return Path(platformdirs.user_config_dir("quire", appauthor=False)) / "quire.toml"


def validate(values: Mapping[Setting, Any]) -> Settings:
    """These values, and the defaults of all other settings. Raises BadSetting."""
    sections: dict[str, dict[str, Any]] = {}
    for setting, value in values.items():
        sections.setdefault(setting.section, {})[setting.key] = value
    try:
        return Settings(**sections)  # type: ignore[arg-type]  # pydantic makes sections of them
    except ValidationError as error:
        raise BadSetting(_sentence(error)) from None


def _from_file(path: Path, must_exist: bool) -> list[_Found]:
    if not must_exist and not path.exists():
        return []
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise BadSetting(f"The settings file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise BadSetting(f"The settings file {path} is not TOML: {error}.") from None
    return _from_text(text, path)


def _from_text(text: str, path: Path) -> list[_Found]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"The settings file {path} is not TOML: {error}.") from None
    return [(*KEYS.find(key, str(path)), value, str(path)) for key, value in _flattened(table)]


def _flattened(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The keys of sections as `section.key`; what is in no section is as version 0.1 had it."""
    for key, value in table.items():
        if key in SECTIONS and isinstance(value, Mapping):
            yield from ((f"{key}.{name}", entry) for name, entry in value.items())
        else:
            yield key, value


def _from_environment(environ: Mapping[str, str]) -> list[_Found]:
    names = (name for name in environ if name.startswith(PREFIX) and name != CONFIG)
    return [(*VARIABLES.find(name.upper(), "environment"), environ[name], name) for name in names]


def _from_call(given: Mapping[str, Any]) -> list[_Found]:
    found: list[_Found] = []
    for key, value in _flattened(given):
        if value is None:
            continue
        spelling = FLAGS if key.startswith("--") else KEYS if "." in key else KEYWORDS
        found.append((*spelling.find(key, "flag" if spelling is FLAGS else "call"), value, key))
    return found


def _sentence(error: ValidationError) -> str:
    parts = []
    for problem in error.errors():
        if problem["type"] == "default_factory_not_called":
            continue  # it follows from another setting, and that is reported
        name = ".".join(map(str, problem["loc"][:2])) or "settings"
        value = "what it is" if "secret" in name or "token" in name else _shown(problem["input"])
        parts.append(f"Setting {name!r} cannot be {value}: {problem['msg'].removeprefix('Value error, ')}.")
    return " ".join(parts)


def _shown(value: Any) -> str:
    return repr(str(value) if isinstance(value, Path) else value)
