"""Servers of other clients' configuration files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quire.capabilities import configs
from quire.capabilities.secrets import Secrets
from quire.core.capabilities.model import Backend
from quire.core.errors import InvalidRequest, NotFound

CLAUDE = {
    "mcpServers": {
        "google-maps": {"command": "npx", "args": ["-y", "maps"], "env": {"KEY": "inline-secret-1"}, "cwd": "/srv"},
        "web": {"type": "http", "url": "https://host/mcp?k=${K}", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        "broken": {"args": ["x"]},
    }
}


def written(path: Path, said: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(said if isinstance(said, str) else json.dumps(said))
    return str(path)


def test_the_servers_of_claude_are_read(tmp_path: Path) -> None:
    found = configs.read_servers(written(tmp_path / "c.json", CLAUDE))
    assert found["google-maps"] == Backend(command=("npx", "-y", "maps"), env={"KEY": "inline-secret-1"}, folder="/srv")
    assert found["web"].url == "https://host/mcp?k=${K}"


@pytest.mark.parametrize(
    "text",
    [
        '{"servers": {"a": {"command": "x"}}}',
        '{"mcp": {"servers": {"a": {"command": "x"}}}}',
        '\ufeff{"mcpServers": {"a": {"command": "x"}}}',
        '{\n// the servers\n"servers": {"a": {"command": "x", /* no arguments */ "args": [],},}, // end\n}',
        '{"servers": {"a": {"command": "x", "env": {"U": "http://h/*x*/,]"}}}, }',
    ],
)
def test_each_clients_form_is_understood(tmp_path: Path, text: str) -> None:
    assert configs.read_servers(written(tmp_path / "c.json", text))["a"].command == ("x",)


def test_text_that_looks_like_a_comment_is_kept(tmp_path: Path) -> None:
    text = '{"servers": {"a": {"url": "https://h//x,]/*y*/", "headers": {"A": "\\"//,}"}}},}'
    backend = configs.read_servers(written(tmp_path / "c.json", text))["a"]
    assert (backend.url, backend.headers) == ("https://h//x,]/*y*/", {"A": '"//,}'})


@pytest.mark.parametrize("name", ["google-maps", "google_maps", "Google Maps"])
def test_a_server_is_found_by_its_name_or_the_identifier_made_of_it(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "c.json", CLAUDE)
    assert configs.find_server(path, name) == Backend(config=path, entry="google-maps")


def test_what_is_not_there_is_answered_with_what_is(tmp_path: Path) -> None:
    path = written(tmp_path / "c.json", CLAUDE)
    with pytest.raises(NotFound, match="broken, google-maps, web") as failed:
        configs.find_server(path, "maps")
    assert "inline-secret-1" not in str(failed.value)
    with pytest.raises(NotFound, match="claude-code, claude-desktop, cursor, vscode"):
        configs.find_server(str(tmp_path / "none.json"), "maps")


def test_a_clients_word_leads_to_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for client, places in configs.client_files().items():
        written(tmp_path / places[-1], {"mcpServers": {client: {"command": "x"}}})
    for client, places in configs.client_files().items():
        assert configs.find_server(client, client) == Backend(config=str(tmp_path / places[-1]), entry=client)


def test_a_file_of_the_working_folder_goes_by_its_path_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    near = written(tmp_path / ".mcp.json", {"mcpServers": {"a": {"command": "near"}}})
    far = written(tmp_path / "home/.claude.json", {"mcpServers": {"a": {"command": "far"}}})
    assert configs.find_server("claude-code", "a").config == far
    assert configs.find_server(".mcp.json", "a").config == near


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "{} {}", "[" * 5000])
def test_a_file_that_is_no_configuration_is_said_not_to_be(tmp_path: Path, text: str) -> None:
    path = written(tmp_path / "c.json", text)
    with pytest.raises((InvalidRequest, NotFound), match=r"is not JSON|has no MCP server"):
        configs.find_server(path, "a")


def test_an_entry_is_read_again_each_time_and_its_variables_expanded(tmp_path: Path) -> None:
    path = written(tmp_path / "c.json", CLAUDE)
    secrets = Secrets({"K": "query-secret", "TOKEN": "header-secret"})
    backend = configs.resolve_entry(Backend(config=path, entry="web", headers={"X": "own"}), secrets.expand)
    assert backend.url == "https://host/mcp?k=query-secret"
    assert secrets.resolve_all(backend.headers) == {"Authorization": "Bearer header-secret", "X": "own"}
    written(tmp_path / "c.json", {"mcpServers": {"web": {"command": "now", "args": [1]}}})
    assert configs.resolve_entry(Backend(config=path, entry="web"), secrets.expand).command == ("now", "1")


def test_an_entry_without_a_way_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "c.json", CLAUDE)
    with pytest.raises(InvalidRequest, match="neither a command nor a url"):
        configs.resolve_entry(Backend(config=path, entry="broken"), str)


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ({"command": "x", "args": "y"}, Backend(command=("x",))),
        ({"command": ["x", "y"]}, Backend(command=("x", "y"))),
        ({"command": "x", "url": "http://h"}, Backend(command=("x",))),
        (
            {"serverUrl": "http://h", "auth": "env:T"},
            Backend(url="http://h", headers={"Authorization": "Bearer env:T"}),
        ),
        ({"command": "x", "env": {"N": 1, "L": [1]}}, Backend(command=("x",), env={"N": "1"})),
        ({"command": 5, "url": None}, Backend()),
    ],
)
def test_an_entry_given_inline_is_a_backend(given: dict[str, Any], becomes: Backend) -> None:
    assert configs.parse_entry(given) == becomes
