"""Settings: names of sections and of version 0.1, where values are from, and `quire config`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quire import cli, config_command
from quire.frontends.terminal.toml_text import toml_value, with_setting
from quire.settings import BadSetting, Settings, load
from quire.settings.names import FLAGS, KEYS, KEYWORDS, SECTIONS, SETTINGS, VARIABLES, Setting, Spelling
from quire.settings.sources import resolve

NAMES_0_1 = json.loads((Path(__file__).parents[1] / "fixtures" / "settings_0_1.json").read_text())
VALUES = {
    "runtime": "wasm-python",
    "store": "memory",
    "transport": "http",
    "auth": "tokens",
    "toolsets": "repl",
    "replay": "always",
    "sandbox": "require:landlock",
    "network": "pypi.org",
    "allowed_hosts": "example.org",
    "environment": "HOME",
    "wasm_python": "plain",
    "approve": "mail.send=ask",
    "log_level": "info",
    "auth_client_secret": "env:SECRET",
    "jupyter_url": "http://localhost:1234",
    "jupyter_kernel_url": "http://localhost:1234",
    "capability_hosts": "10.0.0.5",
    "max_file_bytes": 5_000,
    "spare_kernels": 3,
    "wasm_memory_bytes": 2**27,
    "audit_bytes": 200_000,
    "max_output_bytes": 20_000,
    "result_chars": 1_000,
    "call_chars": 2_000,
    "wasm_open_files": 7,
}


def setting_of(old: str) -> Setting:
    return next(setting for setting in SETTINGS if setting.old == old)


def other_value(setting: Setting, tmp_path: Path) -> Any:
    """A value that is not the default."""
    if setting.old in VALUES:
        return VALUES[setting.old]
    default = setting.value(load(environ={}))
    if isinstance(default, bool):
        return not default
    if isinstance(default, int | float):
        return default + 7
    return str(tmp_path) if setting.old == "workspace" else str(tmp_path / "other")


@pytest.fixture(autouse=True)
def no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_every_name_of_0_1_is_there() -> None:
    assert sorted(setting.old for setting in SETTINGS) == NAMES_0_1


@pytest.mark.parametrize("old", NAMES_0_1)
def test_old_name_works_everywhere_and_warns_once(old: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    setting = setting_of(old)
    value = other_value(setting, tmp_path)
    expected = setting.value(load({setting.keyword: value}, environ={}))
    assert expected != setting.value(load(environ={}))
    file = tmp_path / "quire.toml"
    file.write_text(f"{old} = {toml_value(value)}\n")

    def from_flag() -> Settings:
        parsed = cli.parser().parse(["serve", f"{FLAGS.old(setting)}={value}"])
        return load(config_command.given_flags(parsed), environ={})

    sources: list[tuple[Callable[[], Settings], Spelling]] = [
        (lambda: load(environ={}, config=file), KEYS),
        (lambda: load(environ={VARIABLES.old(setting): str(value)}), VARIABLES),
        (lambda: load({old: value}, environ={}), KEYWORDS),
        (from_flag, FLAGS),
    ]
    if old == "data_dir":
        sources.pop()  # --data-dir stays: every command has it
    for source, spelling in sources:
        caplog.clear()
        assert setting.value(source()) == expected
        warnings = [record.getMessage() for record in caplog.records]
        if spelling.new(setting) == spelling.old(setting):
            assert warnings == []
        else:
            (warning,) = warnings
            assert f"is now {spelling.new(setting)};" in warning and warning.startswith(spelling.old(setting))


def test_new_names_do_not_warn(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "quire.toml").write_text('[kernel]\npreload = []\n\n[sandbox]\nmode = "off"\n')
    found = load(
        {"limits": {"max_cells": 5}, "limits_max_runs": 6, "--limits-max-kernels": "7"},
        environ={"QUIRE_SERVER_PORT": "0"},
        config=tmp_path / "quire.toml",
    )
    assert (found.limits.max_cells, found.limits.max_runs, found.limits.max_kernels) == (5, 6, 7)
    assert (found.kernel.preload, found.sandbox.mode, found.server.port) == ((), "off", 0)
    assert caplog.records == []


def test_no_new_name_means_another_old_setting() -> None:
    for spelling in (FLAGS, KEYWORDS, VARIABLES, KEYS):
        old = {spelling.old(setting): setting for setting in SETTINGS}
        assert [name for setting in SETTINGS if old.get(name := spelling.new(setting), setting) is not setting] == []
    assert [section for section in SECTIONS if "_" in section] == []


def test_names_give_the_unit_of_seconds_and_bytes() -> None:
    for setting in SETTINGS:
        for unit in ("Seconds", "Bytes"):
            assert not setting.description.startswith(unit) or unit.lower() in setting.key, setting.name


def test_new_name_wins_over_the_old_one_in_the_same_place(tmp_path: Path) -> None:
    environ = {"QUIRE_SERVER_CALL_WAIT_SECONDS": "3", "QUIRE_PATIENCE": "4"}
    assert load(environ=environ).server.call_wait_seconds == 3
    (tmp_path / "quire.toml").write_text("max_cells = 4\n[limits]\nmax_cells = 3\n")
    assert load(environ={}, config=tmp_path / "quire.toml").limits.max_cells == 3


def test_flags_override_variables_and_variables_the_file(tmp_path: Path) -> None:
    (tmp_path / "quire.toml").write_text("[limits]\nmax_cells = 1\nmax_runs = 1\nmax_kernels = 1\n")
    environ = {"QUIRE_LIMITS_MAX_CELLS": "2", "QUIRE_MAX_RUNS": "2"}
    found = resolve({"--limits-max-cells": "3"}, environ=environ, config=tmp_path / "quire.toml")
    limits = found.settings.limits
    assert (limits.max_cells, limits.max_runs, limits.max_kernels) == (3, 2, 1)
    assert found.origins == {
        "limits.max_cells": "--limits-max-cells",
        "limits.max_runs": "QUIRE_MAX_RUNS",
        "limits.max_kernels": str(tmp_path / "quire.toml"),
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[limits]\nmax_cell = 3\n", "There is no setting 'limits.max_cell' (FILE). The nearest is limits.max_cells."),
        ("cell_timeot = 3\n", "There is no setting 'cell_timeot' (FILE). The nearest is kernel.cell_timeout_seconds."),
        ("kernel = 3\n", "There is no setting 'kernel' (FILE)."),
        ('[server]\nport = "many"\n', "Setting 'server.port' cannot be 'many': "),
        ('port = "many"\n', "Setting 'server.port' cannot be 'many': "),
        ('[auth]\nclient_secret = "hunter2"\n', "Setting 'auth.client_secret' cannot be what it is: "),
        ('[capabilities]\napprove = {"*" = "maybe"}\n', "Setting 'capabilities.approve' cannot be 'maybe': "),
        ("[limits\n", "The settings file FILE is not TOML: "),
    ],
)
def test_bad_file_is_refused_with_the_key_and_the_nearest_name(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "quire.toml"
    file.write_text(text)
    with pytest.raises(BadSetting) as refused:
        load(environ={}, config=file)
    assert says.replace("FILE", str(file)) in str(refused.value)
    assert "\n" not in str(refused.value) and "hunter2" not in str(refused.value)


def test_old_words_of_approve_are_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    found = load({"capabilities_approve": "a.*=never,b=always,c=ask,*=deny"}, environ={})
    assert found.capabilities.approve == {"a.*": "allow", "b": "ask_or_deny", "c": "ask", "*": "deny"}
    assert [record.args for record in caplog.records] == [("always", "ask_or_deny"), ("never", "allow")]


# quire config


def config(*words: str, path: Path) -> int:
    parsed = cli.parser().parse(["config", *words, "--config", str(path)])
    return parsed.command(parsed) or 0


FILE = """# My settings.
[kernel]  # of cells
preload = ["numpy"]   # only this

# Limits of everyone.
[limits]
max_cells = 5 # few
"""


@pytest.mark.parametrize(
    ("before", "key", "value", "after"),
    [
        ("", "limits.max_cells", "7", "[limits]\nmax_cells = 7\n"),
        (FILE, "limits.max_cells", "7", FILE.replace("= 5", "= 7")),
        (FILE, "limits.max_runs", "7", FILE + "max_runs = 7\n"),
        (FILE, "server.port", "0", FILE + "\n[server]\nport = 0\n"),
        (FILE, "kernel.preload", "numpy, pandas", FILE.replace('["numpy"]', '["numpy", "pandas"]')),
        (
            FILE,
            "kernel.cell_timeout_seconds",
            "1.5",
            FILE.replace("# only this\n", "# only this\ncell_timeout_seconds = 1.5\n"),
        ),
        (FILE.replace("\n", "\r\n"), "limits.max_runs", "7", (FILE + "max_runs = 7\n").replace("\n", "\r\n")),
        ('sandbox = "off" # why\nport = 1\n', "sandbox.mode", "auto", 'sandbox.mode = "auto" # why\nport = 1\n'),
        ("patience = 5\n", "server.call_wait_seconds", "6", "server.call_wait_seconds = 6\n"),
        ("max_cells = 1 # few\n[limits]\n", "limits.max_cells", "2", "# few\n[limits]\nmax_cells = 2\n"),
        ("max_cells = 1\n[limits]\nmax_cells = 1\n", "limits.max_cells", "2", "[limits]\nmax_cells = 2\n"),
        ("server.port = 1\n", "server.host", "::1", 'server.port = 1\nserver.host = "::1"\n'),
        ("[kernel]\npreload = [\n 'a#b',\n]\n[auth]\n", "kernel.preload", "c", '[kernel]\npreload = ["c"]\n[auth]\n'),
        ("", "store.audit_required", "yes", "[store]\naudit_required = true\n"),
        ("", "capabilities.approve", "a.b=deny", '[capabilities]\napprove = { "a.b" = "deny" }\n'),
        ("", "patience", "5", "[server]\ncall_wait_seconds = 5\n"),
        ("[limits]\nmax_cells = 5", "limits.max_runs", "7", "[limits]\nmax_cells = 5\nmax_runs = 7\n"),
    ],
)
def test_set_changes_one_value_and_nothing_else(
    before: str, key: str, value: str, after: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "quire.toml"
    file.write_bytes(before.encode())
    assert config("set", key, value, path=file) == 0
    assert file.read_bytes().decode() == after
    assert capsys.readouterr().out.endswith(f"in {file}\n")


@pytest.mark.parametrize(
    ("before", "key", "value", "says"),
    [
        ("", "limits.max_cells", "none", "Setting 'limits.max_cells' cannot be 'none'"),
        ("", "limits.max_cell", "5", "The nearest is limits.max_cells."),
        ("[limits]\nmax_cells = 'x'\n", "limits.max_runs", "5", "Setting 'limits.max_cells' cannot be 'x'"),
        ("[limits\n", "limits.max_runs", "5", "it is not valid TOML"),
        ("limits = {max_cells = 3}\n", "limits.max_runs", "5", "without changing the rest"),
        ("[kernel]\npreload = [ # why\n 'a']\n", "kernel.preload", "b", "holds comments"),
    ],
)
def test_set_that_is_refused_leaves_the_file(before: str, key: str, value: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "quire.toml"
    file.write_text(before)
    with pytest.raises(BadSetting) as refused:
        config("set", key, value, path=file)
    assert says in str(refused.value) and file.read_text() == before


def test_show_lists_every_setting_with_its_source_and_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "quire.toml"
    file.write_text(
        '[jupyter]\nurl = ["http://localhost:1/lab?token=hunter2&a=b", "http://localhost:2"]\n'
        'token = ["hunter2", "env:TOKEN"]\n[limits]\nmax_cells = 5\n'
    )
    monkeypatch.setenv("QUIRE_server_port", "1234")
    assert config("show", "--json", path=file) == 0
    shown = {entry["key"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert list(shown) == [setting.name for setting in SETTINGS]
    assert shown["limits.max_cells"] == {"key": "limits.max_cells", "value": 5, "source": str(file)}
    assert shown["server.port"] == {"key": "server.port", "value": 1234, "source": "QUIRE_server_port"}
    assert shown["sandbox.mode"] == {"key": "sandbox.mode", "value": "auto", "source": "default"}
    assert shown["jupyter.token"]["value"] == ["(hidden)", "env:TOKEN"]
    assert shown["jupyter.url"]["value"] == ["http://localhost:1/lab?token=(hidden)&a=b", "http://localhost:2"]
    assert config("show", path=file) == 0
    text = capsys.readouterr().out
    assert "hunter2" not in text and all(setting.name in text for setting in SETTINGS)


def test_get_prints_one_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "quire.toml"
    file.write_text("[limits]\nmax_cells = 5\n")
    for key, printed in (("limits.max_cells", "5"), ("checkpoints.auto_restore", "true"), ("sandbox.mounts", "")):
        config("get", key, path=file)
        assert capsys.readouterr().out == f"{printed}\n"
    config("path", path=file)
    assert capsys.readouterr().out == f"{file}\n"


def test_values_survive_the_file(tmp_path: Path) -> None:
    text = with_setting("", "server", "host", "host", 'a"\\b\x7f')
    (tmp_path / "quire.toml").write_text(text)
    assert load(environ={}, config=tmp_path / "quire.toml").server.host == 'a"\\b\x7f'


def test_help_of_serve_groups_flags_and_hides_old_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.parser().parse(["serve", "--help"])
    text = capsys.readouterr().out
    assert [section for section in SECTIONS if f"[{section}]:\n" not in text] == []
    assert "--limits-max-cells" in text and "--max-cells" not in text
