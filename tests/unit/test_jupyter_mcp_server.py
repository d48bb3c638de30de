"""Options and variables of jupyter-mcp-server, as settings; the cells that `jupyter_cite` is asked for."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from quire import jupyter_mcp_server
from quire.core.errors import InvalidRequest, NotFound, QuireError
from quire.frontends.mcp.toolsets.jupyter_cite import numbers
from quire.settings import BadSetting

LAB, GPU = "http://lab:8888", "http://gpu:8888"


def started(line: str = "", **variables: str) -> jupyter_mcp_server.Start:
    parser = argparse.ArgumentParser()
    jupyter_mcp_server.add_arguments(parser)
    return jupyter_mcp_server.start(vars(parser.parse_args(line.split())), variables)


def servers(start: jupyter_mcp_server.Start) -> dict[str, Any]:
    return {name: value for name, value in start.settings.items() if name.startswith("jupyter_")}


@pytest.mark.parametrize(
    ("line", "variables", "expected"),
    [
        ("start", {}, {"jupyter_url": "http://localhost:8888"}),
        (f"--jupyter-url {LAB} --jupyter-token t", {}, {"jupyter_url": LAB, "jupyter_token": "t"}),
        ("", {"DOCUMENT_URL": LAB, "RUNTIME_URL": f"{LAB}/"}, {"jupyter_url": LAB}),
        ("", {"DOCUMENT_URL": LAB, "RUNTIME_TOKEN": "t"}, {"jupyter_url": LAB, "jupyter_token": "t"}),
        ("", {"CODE_SANDBOX_URL": LAB}, {"jupyter_url": LAB}),
        (f"--document-url {LAB}", {"DOCUMENT_URL": GPU}, {"jupyter_url": LAB}),
        ("--document-id a.ipynb", {}, {"jupyter_url": "http://localhost:8888", "jupyter_document": "a.ipynb"}),
        (
            f"start --code-sandbox-url {GPU} --code-sandbox-token g",
            {"DOCUMENT_URL": LAB, "DOCUMENT_TOKEN": "l"},
            {"jupyter_url": LAB, "jupyter_token": "l", "jupyter_kernel_url": GPU, "jupyter_kernel_token": "g"},
        ),
    ],
)
def test_urls_and_tokens_become_settings(line: str, variables: dict[str, str], expected: dict[str, str]) -> None:
    assert servers(started(line, **variables)) == expected


def test_timeouts_port_and_kernel_have_the_defaults_of_the_peer() -> None:
    assert started().settings == {
        "server_transport": "stdio",
        "server_port": "4040",
        "server_toolsets": "jupyter",
        "kernel_cell_timeout_seconds": "120",
        "jupyter_url": "http://localhost:8888",
    }
    assert started().starts_kernel
    given = started(START_NEW_RUNTIME="False", RUNTIME_ID="k", JUPYTER_MCP_EXECUTION_TIMEOUT="9", PORT="1")
    assert (given.starts_kernel, given.kernel) == (False, "k")
    assert (given.settings["kernel_cell_timeout_seconds"], given.settings["server_port"]) == ("9", "1")


def test_token_is_asked_for_over_http_only() -> None:
    assert started("--transport streamable-http --mcp-token secret").token == "secret"
    assert "secret" not in repr(started("--transport streamable-http --mcp-token secret"))
    assert started("--transport streamable-http --insecure-mcp-noauth").token == ""
    assert started(MCP_TOKEN="secret").token == ""
    for line in ("--transport streamable-http", "--transport streamable-http --insecure-mcp-noauth false"):
        with pytest.raises(BadSetting, match="--mcp-token"):
            started(line)


@pytest.mark.parametrize("variables", [{"TRANSPORT": "sse"}, {"START_NEW_RUNTIME": "perhaps"}])
def test_value_outside_the_options_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises(BadSetting, match="Nothing was started"):
        started(**variables)


def test_option_without_effect_is_taken_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    started("start --jupyterlab true --otel-file spans.jsonl")
    assert (
        capsys.readouterr().err == "quire: --jupyterlab has no effect here.\nquire: --otel-file has no effect here.\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", [0]), ("0-2,4", [0, 1, 2, 4]), ("3-", [3, 4]), (" 4 , 0 - 1,", [0, 1, 4]), ("1,1-1", [1])],
)
def test_cells_are_named_by_numbers_and_ranges(text: str, expected: list[int]) -> None:
    assert numbers(text, 5) == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *((text, InvalidRequest) for text in ("", ",", "-1", "a", "1-2-3", "9" * 5000)),
        *((text, NotFound) for text in ("5", "3-9", "2-1", "5-", "0-999999999")),
    ],
)
def test_cells_that_cannot_be_cited_are_refused(text: str, error: type[QuireError]) -> None:
    with pytest.raises(error):
        numbers(text, 5)
