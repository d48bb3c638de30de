"""Settings on the command line: the flags of `quire serve`, and `quire config show|get|set|path`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quire.core.errors import InvalidRequest
from quire.frontends.terminal.usage import Parser
from quire.settings import BadSetting, Settings, config_file
from quire.settings.names import FLAGS, KEYS, SECTIONS, SETTINGS, Setting, section_class
from quire.settings.sources import parse_file, resolve, validate

_DATA_DIR = "--store-data-dir"
_HIDDEN = "(hidden)"


def add_common_flags(parser: Parser) -> None:
    """Those that every command has."""
    (setting,) = (setting for setting in SETTINGS if FLAGS.new(setting) == _DATA_DIR)
    parser.add_argument("--data-dir", _DATA_DIR, dest=_DATA_DIR, type=Path, metavar="DIR", help=_help(setting))
    parser.add_argument("--config", type=Path, metavar="FILE", help="Settings file to use instead of the default one")


def add_flags(parser: Parser) -> None:
    """A flag for every setting, grouped by section; flags of version 0.1 are accepted and not shown."""
    parser.usage = "%(prog)s [-h] [--data-dir DIR] [--config FILE] [--SECTION-KEY VALUE ...]"
    for section in SECTIONS:
        group = parser.add_argument_group(f"[{section}]", section_class(section).__doc__)
        for setting in SETTINGS:
            new, old = FLAGS.new(setting), FLAGS.old(setting)
            if setting.section != section or new == _DATA_DIR:
                continue
            options: dict[str, Any] = {"nargs": "?", "const": "true"} if setting.field.annotation is bool else {}
            group.add_argument(new, dest=new, metavar=setting.key.upper(), help=_help(setting), **options)
            if old != new:
                parser.add_old_option(old, new, **options)


def _help(setting: Setting) -> str:
    return setting.description.replace("%", "%%")


def given_flags(parsed: argparse.Namespace) -> dict[str, Any]:
    """The settings that flags give."""
    return {name: value for name, value in vars(parsed).items() if name.startswith("--")}


def data_dir(parsed: argparse.Namespace) -> Path | None:
    found: Path | None = vars(parsed)[_DATA_DIR]
    return found


def add_arguments(parser: Parser) -> None:
    actions = ("show", "get", "set", "path")
    parser.add_argument("action", choices=actions, help="Show all settings, get or set one, or print the file's path")
    parser.add_argument("key", nargs="?", metavar="KEY", help="Of the setting, as limits.max_cells")
    parser.add_argument("value", nargs="?", metavar="VALUE", help="For set; lists are separated by commas")
    parser.add_argument("--json", action="store_true", help="Print JSON")


def run(parsed: argparse.Namespace) -> int:
    """`quire config`. Raises BadSetting or InvalidRequest."""
    path = config_file(parsed.config)
    wanted = {"show": 0, "path": 0, "get": 1, "set": 2}[parsed.action]
    given = [word for word in (parsed.key, parsed.value) if word is not None]
    if len(given) != wanted:
        usage = " ".join(["quire config", parsed.action, *("KEY", "VALUE")[:wanted]])
        raise InvalidRequest(f"The command is `{usage}`.")
    match parsed.action:
        case "path":
            print(json.dumps(str(path)) if parsed.json else path)
        case "set":
            _set(path, parsed.key, parsed.value)
        case _:
            _show(parsed, given)
    return 0


def _show(parsed: argparse.Namespace, keys: list[str]) -> None:
    """All settings, or the value of one."""
    shown = [KEYS.find(key, "quire config")[0] for key in keys] or SETTINGS
    resolved = resolve(given_flags(parsed), config=parsed.config)
    values = {setting.name: _value(setting, resolved.settings) for setting in shown}
    if parsed.json:
        entries = [
            {"key": name, "value": value, "source": resolved.origins.get(name, "default")}
            for name, value in values.items()
        ]
        print(json.dumps(entries[0] if keys else entries, indent=1))
    elif keys:
        print(*map(_text, values.values()))
    else:
        _print_table(values, resolved.origins)


def _value(setting: Setting, settings: Settings) -> Any:
    """As JSON has it. A secret is hidden, a reference to one is not."""
    value = setting.value(settings)
    if setting.is_secret and value:
        entries = value if isinstance(value, tuple) else (value,)
        hidden = [entry if entry.startswith(("env:", "file:")) else _HIDDEN for entry in entries]
        value = hidden if isinstance(value, tuple) else hidden[0]
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.15g}"
        case list():
            return ",".join(value)
        case dict():
            return ",".join(f"{name}={word}" for name, word in value.items())
    return str(value)


def _print_table(values: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from quire.frontends.terminal import tables

    table = Table("setting", "value", "from", box=None, header_style="bold")
    for name, value in values.items():
        table.add_row(name, Text(_text(value)), Text(origins.get(name, "default")))
    tables.show(table)


def _set(path: Path, key: str, text: str) -> None:
    """Write one setting to the file. Everything else in it stays as it is, comments too."""
    from quire.frontends.terminal.toml_text import replace_file, with_setting

    setting, _ = KEYS.find(key, "quire config")
    value = _for_file(setting, text)
    try:
        target = path.resolve()
        before = target.read_bytes().decode() if target.exists() else ""
        after = with_setting(before, setting.section, setting.key, setting.old, value)
        parse_file(after, path)
        if after != before:
            replace_file(target, after)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BadSetting(f"{path} was not changed: {why}. Edit it yourself: {setting.name} = {text}") from error
    print(f"{setting.name} = {_HIDDEN if setting.is_secret else text} in {path}")


def _for_file(setting: Setting, text: str) -> Any:
    """A value given as text, as it is written to the file."""
    value = setting.value(validate({setting: text}))
    match value:
        case tuple():
            return [word.strip() for word in text.split(",") if word.strip()]
        case dict():
            return value
        case float() if value.is_integer():
            return int(value)
        case bool() | int() | float():
            return value
    return text
