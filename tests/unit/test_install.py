"""Client configurations, written into real files and read back as the client would."""

from __future__ import annotations

import json
import os
import re
import resource
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from quire.frontends.terminal.install import CLIENTS, ConfigurationRefused, configuration, path_of, write

COMMAND = ["uvx", "quire"]
KEYS = dict.fromkeys(CLIENTS, "mcpServers") | {"vscode": "servers", "codex": "mcp_servers"}
JSON_CLIENTS = [client for client in CLIENTS if client != "codex"]
COMMENTED_CLIENTS = ["cursor", "vscode", "gemini-cli"]
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "clients.md"

every_client = pytest.mark.parametrize("client", CLIENTS)
every_json_client = pytest.mark.parametrize("client", JSON_CLIENTS)
every_commented_client = pytest.mark.parametrize("client", COMMENTED_CLIENTS)


def install(
    client: str,
    path: Path,
    *,
    name: str = "quire",
    command: list[str] = COMMAND,
    env: dict[str, str] | None = None,
) -> str:
    return write(client, path, name=name, command=command, env=env or {})


def parsed(client: str, text: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(text) if client == "codex" else json.loads(text)
    return found


def existing(client: str) -> str:
    """A file of the client's with another server and other settings, oddly but legally written."""
    if client == "codex":
        return CODEX
    key = KEYS[client]
    return (
        "{\n"
        '  "zoom": 1.50,\n'
        f'  "{key}": {{\n'
        '    "other": {"command": "npx", "args": ["-y", "other"]}\n'
        "  },\n"
        '  "motto": "naïve \\ud83d 日本 // no comment",\n'
        '  "big": 12345678901234567890.0e400\n'
        "}\n"
    )


CODEX = """\
# chosen by hand
model   =   "gpt-5"  # the good one
limit = nan

[mcp_servers.other]
command = 'npx'
args = [
  "-y",   # no questions
  "other",
]

[projects."/home/me/a b"]
trust_level = "trusted"
notes = \"\"\"
[mcp_servers.quire]
not a table
\"\"\"
"""


# ---- what is written


@every_client
def test_a_fresh_file_holds_exactly_the_configuration(client: str, tmp_path: Path) -> None:
    path = tmp_path / "not" / "there" / "yet"

    assert install(client, path) == f"Added 'quire' to {path}."

    assert path.read_text() == configuration(client, name="quire", command=COMMAND, env={})
    assert [each.name for each in path.parent.iterdir()] == ["yet"]


@every_client
def test_a_new_file_is_private(client: str, tmp_path: Path) -> None:
    install(client, tmp_path / "file", env={"TOKEN": "secret"})

    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


@every_client
@pytest.mark.parametrize("content", ["", "\n", "  \n\n"])
def test_an_empty_file_counts_as_a_fresh_one(client: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(content)

    install(client, path)

    assert path.read_text().strip() == configuration(client, name="quire", command=COMMAND, env={}).strip()


@every_client
def test_the_entry_starts_the_server_over_stdio(client: str) -> None:
    text = configuration(client, name="quire", command=["/a b/uvx", "quire", "--x=1"], env={"A": "é"})
    entry = parsed(client, text)[KEYS[client]]["quire"]

    assert entry.pop("type", "stdio") == "stdio"
    assert entry == {"command": "/a b/uvx", "args": ["quire", "--x=1"], "env": {"A": "é"}}
    assert "é" in text


def test_the_clients_that_want_a_type_get_one() -> None:
    typed = [client for client in JSON_CLIENTS if '"type"' in configuration(client, name="q", command=["q"], env={})]

    assert typed == ["claude-code", "cursor", "vscode"]


# ---- what is kept


@every_client
def test_everything_else_is_kept_to_the_byte(client: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = existing(client)
    path.write_text(before, encoding="utf-8")

    assert install(client, path).startswith("Added 'quire' to ")

    after = path.read_text(encoding="utf-8")
    assert after != before
    assert left_after_removing_one_piece(after, before)
    assert "quire" in parsed(client, after)[KEYS[client]]


def left_after_removing_one_piece(after: str, before: str) -> bool:
    size = len(after) - len(before)
    return any(after[:start] + after[start + size :] == before for start in range(len(before) + 1))


@every_json_client
def test_the_order_of_keys_and_servers_is_kept_and_ours_comes_last(client: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(existing(client))

    install(client, path)

    after = json.loads(path.read_text())
    assert list(after) == ["zoom", KEYS[client], "motto", "big"]
    assert list(after[KEYS[client]]) == ["other", "quire"]


@every_json_client
def test_a_file_without_servers_gets_them_at_its_end(client: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text('{\n  "theme": "dark"\n}\n')

    install(client, path)

    ours = configuration(client, name="quire", command=COMMAND, env={})
    assert path.read_text() == '{\n  "theme": "dark",\n' + ours.removeprefix("{\n")


@every_json_client
@pytest.mark.parametrize("servers", ["{}", "{ }", "{\n  }"])
def test_an_empty_set_of_servers_is_filled(client: str, servers: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(f'{{\n  "{KEYS[client]}": {servers}\n}}\n')

    install(client, path)

    assert list(json.loads(path.read_text())[KEYS[client]]) == ["quire"]


@every_json_client
def test_a_file_on_one_line_is_still_merged(client: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(f'{{"{KEYS[client]}": {{"other": {{}}}}, "a": [1, {{"b": "}}"}}]}}')

    install(client, path)

    after = json.loads(path.read_text())
    assert list(after[KEYS[client]]) == ["other", "quire"]
    assert after["a"] == [1, {"b": "}"}]


def test_tabs_and_windows_line_ends_are_kept_and_used(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(b'{\r\n\t"servers": {\r\n\t\t"a": {}\r\n\t},\r\n\t"inputs": []\r\n}\r\n')

    install("vscode", path)

    assert path.read_bytes() == (
        b'{\r\n\t"servers": {\r\n\t\t"a": {},\r\n'
        b'\t\t"quire": {\r\n\t\t\t"type": "stdio",\r\n\t\t\t"command": "uvx",\r\n'
        b'\t\t\t"args": [\r\n\t\t\t\t"quire"\r\n\t\t\t]\r\n\t\t}\r\n'
        b'\t},\r\n\t"inputs": []\r\n}\r\n'
    )


@every_client
def test_a_byte_order_mark_is_kept(client: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbf" + existing(client).encode())

    install(client, path)

    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    assert "quire" in parsed(client, path.read_bytes().decode("utf-8-sig"))[KEYS[client]]


@every_client
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_the_mode_of_the_file_is_kept(client: str, mode: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(existing(client))
    path.chmod(mode)

    install(client, path)

    assert stat.S_IMODE(path.stat().st_mode) == mode


@every_client
def test_a_link_stays_a_link_and_its_target_is_written(client: str, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles" / "real"
    target.parent.mkdir()
    target.write_text(existing(client))
    path = tmp_path / "file"
    path.symlink_to("dotfiles/real")

    install(client, path)

    assert path.is_symlink()
    assert "quire" in parsed(client, target.read_text())[KEYS[client]]
    assert [each.name for each in target.parent.iterdir()] == ["real"]


# ---- a second install, and a changed one


@every_client
def test_the_second_run_changes_nothing(client: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(existing(client))
    install(client, path, env={"A": "1"})
    first, written = path.read_bytes(), path.stat()

    assert install(client, path, env={"A": "1"}) == f"Already there, unchanged: 'quire' in {path}."

    assert path.read_bytes() == first
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


@every_client
def test_another_command_replaces_our_entry_alone(client: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(existing(client))
    install(client, path, command=["old", "thing"], env={"A": "1"})
    install(client, path, name="after")

    assert install(client, path) == f"Replaced the entry 'quire' in {path}."

    expected = tmp_path / "expected"
    expected.write_text(existing(client))
    install(client, expected)
    install(client, expected, name="after")
    assert path.read_bytes() == expected.read_bytes()


@every_client
def test_two_names_are_two_entries(client: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    install(client, path)
    install(client, path, name="quire-2")

    assert list(parsed(client, path.read_text())[KEYS[client]]) == ["quire", "quire-2"]


@every_client
@pytest.mark.parametrize(
    "name", ["a.b", "two words", 'say "hi"', "back\\slash", "é", "#x", "a]b", "line\nend", "", "'"]
)
def test_a_name_with_odd_characters_is_quoted(client: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(existing(client))
    odd = {"k e\ty": 'v"\\\n\x7f\x01é'}

    install(client, path, name=name, command=["old"])
    install(client, path, name=name, command=["a\\b", "# no comment", 'q"'], env=odd)

    entry = parsed(client, path.read_text(encoding="utf-8"))[KEYS[client]][name]
    assert (entry["command"], entry["args"], entry["env"]) == ("a\\b", ["# no comment", 'q"'], odd)
    assert install(client, path, name=name, command=["a\\b", "# no comment", 'q"'], env=odd).startswith("Already")


# ---- what is refused


def refused(client: str, path: Path, content: bytes) -> str:
    """The message of a refusal that left the file, and its folder, as they were."""
    path.write_bytes(content)
    before = path.stat()
    with pytest.raises(ConfigurationRefused) as raised:
        install(client, path)
    assert path.read_bytes() == content
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert str(path) in str(raised.value)
    assert configuration(client, name="quire", command=COMMAND, env={}) in str(raised.value)
    return str(raised.value)


@every_json_client
@pytest.mark.parametrize(
    "content",
    ['{"a": 1', '{"a": 1}}', "{'a': 1}", '{"a": NaN}', "{a: 1}", '{"a" 1}', '{"a": "\n"}', "hello", "}"],
)
def test_a_file_that_is_not_json_is_refused(client: str, content: str, tmp_path: Path) -> None:
    assert "it is not valid JSON (" in refused(client, tmp_path / "file", content.encode())


@every_json_client
@pytest.mark.parametrize("content", ["[]", "null", '"text"', "3"])
def test_json_that_is_not_an_object_is_refused(client: str, content: str, tmp_path: Path) -> None:
    assert "its top level is not a JSON object" in refused(client, tmp_path / "file", content.encode())


@every_client
@pytest.mark.parametrize("value", ["[]", "3", '"text"'])
def test_servers_that_are_not_an_object_are_refused(client: str, value: str, tmp_path: Path) -> None:
    key = KEYS[client]
    content = f"{key} = {value}\n" if client == "codex" else f'{{"{key}": {value}}}'

    assert f"its '{key}' does not hold servers by name" in refused(client, tmp_path / "file", content.encode())


@pytest.mark.parametrize("content", ["a = ", "[a\n", "a = 1\na = 2\n", '{"a": 1}'])
def test_a_file_that_is_not_toml_is_refused(content: str, tmp_path: Path) -> None:
    assert "it is not valid TOML (" in refused("codex", tmp_path / "file", content.encode())


@every_client
def test_a_file_that_is_not_utf8_is_refused(client: str, tmp_path: Path) -> None:
    refused(client, tmp_path / "file", b'{"a": "\xff"}')


def test_the_refusal_names_the_line(tmp_path: Path) -> None:
    message = refused("vscode", tmp_path / "file", b'{\n  /* two\n  lines */\n  "a": oops\n}')

    assert "(line 4: " in message


def test_json_nested_without_end_is_refused(tmp_path: Path) -> None:
    refused("cursor", tmp_path / "file", b'{"a":' + b"[" * 100_000)


@every_client
def test_a_folder_in_the_place_of_the_file_is_refused(client: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationRefused, match=re.escape(str(tmp_path))):
        install(client, tmp_path)


@every_client
def test_links_in_a_circle_are_refused(client: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.symlink_to(path)

    with pytest.raises(ConfigurationRefused):
        install(client, path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@every_client
def test_a_folder_that_may_not_be_written_is_refused(client: str, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)

    with pytest.raises(ConfigurationRefused, match="Permission denied"):
        install(client, folder / "file")


@every_client
def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_beside_it(client: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(existing(client))
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, usual[1]))
    try:
        with pytest.raises(ConfigurationRefused, match="File too large"):
            install(client, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)

    assert path.read_text() == existing(client)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


# ---- comments


COMMENTED = """\
// my servers
{
  "KEY": {
    // "resting": {"command": "x"},
    "other": {"url": "http://here"}, // "quire": {} and a } too
    /* "quire": { */
    "last": {}, // stays beside last
    // the end
  },
  "inputs": [], /* none */
}
// bye
"""


@every_commented_client
def test_comments_and_trailing_commas_survive(client: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = COMMENTED.replace("KEY", KEYS[client])
    path.write_text(before)

    install(client, path, command=["old"])
    install(client, path)

    after = path.read_text()
    head, tail = before.split("    // the end")
    assert after.startswith(head + '    "quire": {\n')
    assert after.endswith("\n    }\n    // the end" + tail)
    assert install(client, path).startswith("Already there")


@every_commented_client
def test_a_comment_beside_the_last_server_stays_beside_it(client: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(f'{{\n  "{KEYS[client]}": {{\n    "a": {{}} // about a\n  }}\n}}\n')

    install(client, path)

    assert '    "a": {}, // about a\n    "quire": {\n' in path.read_text()


@every_commented_client
@pytest.mark.parametrize("content", ["// only this", "/* only\nthis */\n", "{ // open\n}\n", "{\n  // inside\n}"])
def test_a_file_of_comments_keeps_them(client: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(content)

    assert install(client, path).startswith("Added")
    assert install(client, path).startswith("Already there")

    comment = re.search(r"//[^\n]*|/\*.*\*/", content, re.DOTALL)
    assert comment is not None
    assert comment[0] in path.read_text()


@every_commented_client
def test_an_entry_of_ours_with_comments_in_it_is_not_replaced(client: str, tmp_path: Path) -> None:
    content = f'{{"{KEYS[client]}": {{"quire": {{"command": "old" /* why */}}}}}}'

    assert "holds comments" in refused(client, tmp_path / "file", content.encode())


@pytest.mark.parametrize("client", ["claude-code", "claude-desktop"])
def test_comments_are_refused_where_the_client_reads_none(client: str, tmp_path: Path) -> None:
    assert "it is not valid JSON (line 2: " in refused(client, tmp_path / "file", b"{\n// hi\n}")


# ---- TOML


def test_a_table_is_added_after_a_blank_line_and_the_rest_is_a_prefix(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(CODEX.removesuffix("\n"))

    install("codex", path)

    assert path.read_text() == f'{CODEX}\n[mcp_servers.quire]\ncommand = "uvx"\nargs = ["quire"]\n'


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_the_lines_of_our_tables_are_replaced(newline: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    ours = '[mcp_servers.quire]\ncommand = "uvx"\nargs = ["quire"]\n'
    old = ' [ mcp_servers . "quire" ]\nargs = [\n  "#",\n  ["x"],\n]\n'
    scattered = "[mcp_servers.quire.env]\nA = '''\n[b]\n'''\n"
    around = "{0}\n# about b\n[b]\nx = 0x1F\n\n{1}\n# about the list\n[[c]]\n  [c.d]\n"
    before, after = CODEX + around.format(old, scattered), CODEX + around.format(ours, "")
    path.write_bytes(before.replace("\n", newline).encode())

    assert install("codex", path).startswith("Replaced the entry 'quire' in ")

    assert path.read_bytes() == after.replace("\n", newline).encode()


@pytest.mark.parametrize(
    "content",
    [
        'mcp_servers = { other = { command = "x" } }\n',
        '[mcp_servers]\nquire = { command = "x" }\n',
        '[mcp_servers]\nquire.command = "x"\n',
        'mcp_servers.quire.command = "x"\n',
    ],
)
def test_servers_written_inline_are_refused(content: str, tmp_path: Path) -> None:
    assert "without touching the rest" in refused("codex", tmp_path / "file", content.encode())


def test_a_table_of_ours_with_comments_in_it_is_not_replaced(tmp_path: Path) -> None:
    content = b'[mcp_servers.quire]\ncommand = "old" # why\n'

    assert "holds comments" in refused("codex", tmp_path / "file", content)


# ---- where it goes


@pytest.mark.parametrize(
    ("client", "linux", "darwin", "win32"),
    [
        ("claude-code", ".claude.json", ".claude.json", ".claude.json"),
        (
            "claude-desktop",
            ".config/Claude/claude_desktop_config.json",
            "Library/Application Support/Claude/claude_desktop_config.json",
            "AppData/Roaming/Claude/claude_desktop_config.json",
        ),
        ("cursor", ".cursor/mcp.json", ".cursor/mcp.json", ".cursor/mcp.json"),
        (
            "vscode",
            ".config/Code/User/mcp.json",
            "Library/Application Support/Code/User/mcp.json",
            "AppData/Roaming/Code/User/mcp.json",
        ),
        ("codex", ".codex/config.toml", ".codex/config.toml", ".codex/config.toml"),
        ("gemini-cli", ".gemini/settings.json", ".gemini/settings.json", ".gemini/settings.json"),
    ],
)
def test_each_client_has_its_place_under_the_home(client: str, linux: str, darwin: str, win32: str) -> None:
    home = Path("/home/me")
    for platform, place in {"linux": linux, "darwin": darwin, "win32": win32}.items():
        assert path_of(client, home=home, platform=platform, environ={}) == home / place


@pytest.mark.parametrize(
    ("client", "platform", "variable", "place"),
    [
        ("claude-code", "linux", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("claude-desktop", "linux", "XDG_CONFIG_HOME", "Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", "APPDATA", "Claude/claude_desktop_config.json"),
        ("vscode", "linux", "XDG_CONFIG_HOME", "Code/User/mcp.json"),
        ("vscode", "win32", "APPDATA", "Code/User/mcp.json"),
        ("codex", "darwin", "CODEX_HOME", "config.toml"),
        ("gemini-cli", "linux", "GEMINI_CLI_HOME", ".gemini/settings.json"),
    ],
)
def test_a_variable_moves_the_place_unless_it_is_empty(client: str, platform: str, variable: str, place: str) -> None:
    home = Path("/home/me")
    usual = path_of(client, home=home, platform=platform, environ={})

    assert path_of(client, home=home, platform=platform, environ={variable: "/else"}) == Path("/else") / place
    assert path_of(client, home=home, platform=platform, environ={variable: ""}) == usual


def test_an_unknown_client_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no client 'emacs'.*cursor"):
        path_of("emacs", home=Path("/"), platform="linux", environ={})


# ---- the page


def test_the_page_shows_what_each_client_is_given() -> None:
    _, *sections = PAGE.read_text().split("\n## ")
    shown = {}
    for section in sections:
        (client,) = re.findall(r"^\$ quire install (\S+)$", section, re.MULTILINE)
        (shown[client],) = re.findall(r"^```(?:json|toml)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)

    assert shown == {
        client: configuration(client, name="quire", command=["uvx", "quire"], env={}) for client in CLIENTS
    }
