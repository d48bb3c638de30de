"""Settings on the command line: the flags of `quire serve`, and `quire config show|get|set|path`."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quire.frontends.terminal.usage import Parser
from quire.settings import BadSetting, Settings, config_file
from quire.settings.names import FLAGS, KEYS, SECTIONS, SETTINGS, Setting, section_class
from quire.settings.sources import Resolved, parse_file, resolve, validate

_DATA_DIR = "--store-data-dir"
_HIDDEN = "(hidden)"
_TOKEN_IN_URL = re.compile(r"(?<=[?&]token=)[^&#]+")


def add_common_flags(parser: Parser) -> None:
    """Those that every command has."""
    (setting,) = (setting for setting in SETTINGS if FLAGS.new(setting) == _DATA_DIR)
    parser.add_argument("--data-dir", _DATA_DIR, dest=_DATA_DIR, type=Path, metavar="DIR", help=_help(setting))
    parser.add_argument("--config", type=Path, metavar="FILE", help="Settings file to use instead of the default one")


def add_flags(parser: Parser) -> None:
    """A flag for every setting, grouped by section; flags of version 0.1 are accepted too."""
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
                parser.renamed[old] = new


def _help(setting: Setting) -> str:
    return setting.description.replace("%", "%%")


def given_flags(parsed: argparse.Namespace) -> dict[str, Any]:
    """The settings that flags give."""
    return {name: value for name, value in vars(parsed).items() if name.startswith("--")}


def data_dir(parsed: argparse.Namespace) -> Path | None:
    found: Path | None = vars(parsed)[_DATA_DIR]
    return found


def add_actions(parser: Parser, common: Parser) -> None:
    """`quire config show`, `get`, `set` and `path`. Each raises BadSetting."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def action(name: str, run: Callable[[argparse.Namespace], None], text: str) -> Parser:
        added = actions.add_parser(name, help=text, description=text, parents=[common])
        added.set_defaults(command=run, parser=added)
        if name != "set":
            added.add_argument("--json", action="store_true", help="Print JSON")
        return added

    action("show", _show, "Show all settings, their values, and where these come from")
    action("get", _get, "Print one setting").add_argument("key", metavar="KEY", help="As limits.max_cells")
    change = action("set", _set, "Check one setting and write it to the settings file")
    change.add_argument("key", metavar="KEY", help="As limits.max_cells")
    change.add_argument("value", metavar="VALUE", help="Lists are separated by commas")
    action("path", _path, "Print the path of the settings file")


def _path(parsed: argparse.Namespace) -> None:
    path = str(config_file(parsed.config))
    print(json.dumps(path) if parsed.json else path)


def _show(parsed: argparse.Namespace) -> None:
    resolved = _resolved(parsed)
    entries = [_entry(setting, resolved) for setting in SETTINGS]
    if parsed.json:
        print(json.dumps(entries, indent=1))
        return
    from rich.table import Table
    from rich.text import Text

    from quire.frontends.terminal import tables

    table = Table("setting", "value", "from", box=None, header_style="bold")
    for entry in entries:
        table.add_row(entry["key"], Text(_text(entry["value"])), Text(entry["source"]))
    tables.show(table)


def _get(parsed: argparse.Namespace) -> None:
    setting, _ = KEYS.find(parsed.key, "quire config")
    entry = _entry(setting, _resolved(parsed))
    print(json.dumps(entry, indent=1) if parsed.json else _text(entry["value"]))


def _resolved(parsed: argparse.Namespace) -> Resolved:
    return resolve(given_flags(parsed), config=parsed.config)


def _entry(setting: Setting, resolved: Resolved) -> dict[str, Any]:
    value = _value(setting, resolved.settings)
    return {"key": setting.name, "value": value, "source": resolved.origins.get(setting.name, "default")}


def _value(setting: Setting, settings: Settings) -> Any:
    """As JSON has it. A secret is hidden, a reference to one is not."""
    value = setting.value(settings)
    if setting.is_secret and value:
        entries = value if isinstance(value, tuple) else (value,)
        hidden = [entry if entry.startswith(("env:", "file:")) else _HIDDEN for entry in entries]
        value = hidden if isinstance(value, tuple) else hidden[0]
    elif setting.section == "jupyter" and setting.key.endswith("url"):  # a token may be part of it
        value = [_TOKEN_IN_URL.sub(_HIDDEN, entry) for entry in value]
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


def _set(parsed: argparse.Namespace) -> None:
    """Write one setting to the file. Everything else in it stays as it is, comments too."""
    from quire.frontends.terminal.toml_text import replace_file, with_setting

    path, text = config_file(parsed.config), parsed.value
    setting, _ = KEYS.find(parsed.key, "quire config")
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
