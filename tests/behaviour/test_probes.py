"""What an operator's machines ask: /healthz, /readyz, /metrics; and the spans that a collector gets."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from quire.frontends.http import metrics
from quire.frontends.http.probes import may_see_metrics
from tests.support.http_users import Users, bearer
from tests.support.quick_backend import Quick, install
from tests.support.servers import call, http_client, http_server, stdio_client
from tests.support.waiting import DEADLINE, reached

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="[^"]*",?)*)\})? (\S+)')


def parsed(text: str) -> dict[str, float]:
    """Each sample by its name and labels; every line is one, or says what follows."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ (counter|gauge|histogram))", line), line
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        labels = ",".join(sorted(re.findall(r'[a-z_]+="[^"]*"', sample[2] or "")))  # their order means nothing
        name = f"{sample[1]}{{{labels}}}" if labels else sample[1]
        assert name not in found, line
        found[name] = float(sample[3])
    return found


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server. Only one test calls its tools, and counts the calls."""
    with http_server(tmp_path_factory.mktemp("http") / "data") as (found, _):
        yield found


async def test_metrics_count_calls_runs_kernels_and_checkpoints(url: str) -> None:
    async with http_client(url) as client:
        for code in ("x = 1", "x", "1/0"):
            await call(client, "execute", code=code)
        await call(client, "execute", code="1", notebook="nowhere")
        await call(client, "what is this")
        await client.get_prompt("analyse_notebook")
        await reached(lambda: seen(url)["quire_checkpoints"] >= 1, "a checkpoint is counted")
        await reached(lambda: seen(url)["quire_kernels_spare"] == 1, "the spare kernel is counted")
    found = seen(url)
    named = dict(re.findall(r"# HELP (\S+) (.+)", httpx2.get(url.replace("/mcp", "/metrics")).text))
    assert named.items() <= metrics.HELP.items()  # each says what it is
    assert metrics.HELP.keys() - named.keys() == {"quire_capability_calls_total", "quire_capability_call_seconds"}
    assert found['quire_calls_total{outcome="ok",tool="execute"}'] == 2
    assert found['quire_calls_total{outcome="error",tool="execute"}'] == 1
    assert found['quire_calls_total{outcome="refused",tool="execute"}'] == 1
    assert found['quire_calls_total{outcome="refused",tool="other"}'] == 1
    assert found['quire_calls_total{outcome="ok",tool="prompts/get"}'] == 1
    assert found['quire_runs_total{outcome="success"}'] == 2 and found['quire_runs_total{outcome="error"}'] == 1
    assert found['quire_call_seconds_bucket{le="+Inf",tool="execute"}'] == 4
    assert found['quire_call_seconds_count{tool="execute"}'] == 4 and found["quire_run_seconds_count"] == 3
    assert found["quire_kernels_live"] == 1 and found["quire_runs_active"] == found["quire_runs_waiting"] == 0
    assert found["quire_audit_lost_total"] == 0 and found["process_resident_memory_bytes"] > 1 << 20
    assert found['quire_store_bytes{part="database"}'] > 0 and found["quire_store_free_bytes"] > 0
    ends = [float(end) for end in re.findall(r'le="([^"]+)",tool="execute"', "\n".join(found))]
    counts = [found[f'quire_call_seconds_bucket{{le="{end}",tool="execute"}}'] for end in (*map(written, ends),)]
    assert ends == sorted(ends) and counts == sorted(counts)


METRICS = {
    "process_cpu_seconds_total": ("counter", "Processor time of the server's own process.", set()),
    "process_open_fds": ("gauge", "Descriptors that it has open.", set()),
    "process_resident_memory_bytes": ("gauge", "Memory of the server's own process.", set()),
    "quire_audit_lost_total": ("counter", "Calls that could not be written to the audit log.", set()),
    "quire_build_info": ("gauge", "The version that runs.", {"version"}),
    "quire_call_seconds": ("histogram", "Seconds such a call took, by tool.", {"tool", "le"}),
    "quire_calls_total": ("counter", "Calls of clients that ended, by tool and outcome.", {"tool", "outcome"}),
    "quire_capability_call_seconds": ("histogram", "Seconds such a call took.", {"le"}),
    "quire_capability_calls_total": ("counter", "Calls of capabilities by cells, by outcome.", {"outcome"}),
    "quire_checkpoints": ("gauge", "Checkpoints that live kernels hold.", set()),
    "quire_kernels_live": ("gauge", "Kernels that live.", set()),
    "quire_kernels_spare": ("gauge", "Kernels that are kept ready.", set()),
    "quire_run_seconds": ("histogram", "Seconds a run took.", {"le"}),
    "quire_runs_active": ("gauge", "Runs under way.", set()),
    "quire_runs_total": ("counter", "Runs that ended, by outcome.", {"outcome"}),
    "quire_runs_waiting": ("gauge", "Runs that wait for their turn.", set()),
    "quire_store_bytes": ("gauge", "Bytes on disk, by part; looked at every 30 seconds.", {"part"}),
    "quire_store_free_bytes": ("gauge", "Bytes that the disk has left.", set()),
}
"""Dashboards and alerts of operators depend on these: type, help, labels."""


async def test_metrics_keep_their_names_types_labels_and_help(data_dir: Path, tmp_path: Path) -> None:
    quick = Quick(journal=tmp_path / "journal")
    with http_server(data_dir) as (url, _):
        async with http_client(url) as client:
            await install(client, "quick", quick.command)
            await call(client, "execute", code="quick.echo(1)")
        told = httpx2.get(url.replace("/mcp", "/metrics")).text
    kinds = dict(re.findall(r"# TYPE (\S+) (\w+)", told))
    helps = dict(re.findall(r"# HELP (\S+) (.+)", told))
    labels: dict[str, set[str]] = {}
    for name, said in re.findall(r"^([a-z_]+)(\{.*\})? \S+$", told, re.MULTILINE):
        base = re.sub("_(bucket|sum|count)$", "", name)
        labels.setdefault(base if base in kinds else name, set()).update(re.findall(r'([a-z_]+)="', said))
    assert {name: (kinds[name], helps[name], labels[name]) for name in labels} == METRICS


def seen(url: str) -> dict[str, float]:
    answer = httpx2.get(url.replace("/mcp", "/metrics"))
    assert answer.status_code == 200 and answer.headers["content-type"] == metrics.MEDIA_TYPE
    return parsed(answer.text)


def written(end: float) -> str:
    return "+Inf" if end == float("inf") else f"{end:g}"


def test_without_authentication_metrics_are_for_this_machine() -> None:
    def asked(host: str | None) -> bool:
        app, client = Starlette(), (host, 1) if host is not None else None
        app.state.fastmcp_auth = None
        return may_see_metrics(Request({"type": "http", "client": client, "headers": [], "app": app}))

    assert asked("127.0.0.1") and asked("::1") and asked(None)
    assert not asked("10.0.0.7") and not asked("2001:db8::1") and not asked("testclient")


def test_a_server_without_an_interpreter_is_not_ready_and_says_why(url: str, tmp_path: Path) -> None:
    ready = httpx2.get(url.replace("/mcp", "/readyz"), timeout=DEADLINE)
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
    python = tmp_path / "no-python"
    # It says its version, or it would be refused before the server starts, and runs nothing else.
    python.write_text(f'#!/bin/sh\n[ "$1" = -S ] && exec {sys.executable} "$@"\nexit 1\n')
    python.chmod(0o755)
    with http_server(tmp_path / "other", python=str(python)) as (url, _):
        answer = httpx2.get(url.replace("/mcp", "/readyz"), timeout=DEADLINE)
        assert answer.status_code == 503 and answer.json()["status"] == "not ready"
        assert "no-python" in answer.json()["why"]["runtime"] and "store" not in answer.json()["why"]
        assert httpx2.get(url.replace("/mcp", "/healthz")).status_code == 200  # it is there all the same


def test_a_request_with_another_host_name_is_refused(url: str) -> None:
    for path in ("/metrics", "/readyz"):
        answer = httpx2.get(url.replace("/mcp", path), headers={"Host": "evil.example"})
        assert answer.status_code in (403, 421)


async def test_with_authentication_only_admins_see_metrics(data_dir: Path) -> None:
    with http_server(data_dir, auth="tokens") as (url, _):
        users = Users(url, data_dir)
        asked = url.replace("/mcp", "/metrics")
        admin = bearer(users.token("root", admin=True))
        async with users.client("alice") as client:
            await call(client, "execute", code="1")
        assert httpx2.get(asked).status_code == httpx2.get(asked, headers=users.headers("alice")).status_code == 403
        assert "admin" in httpx2.get(asked, headers=bearer("quire_wrong")).text
        assert "quire_calls_total" in httpx2.get(asked, headers=admin).text
        for path in ("/healthz", "/readyz"):
            assert httpx2.get(url.replace("/mcp", path), timeout=DEADLINE).status_code == 200
    assert [json.loads(line)["who"] for line in (data_dir / "audit.jsonl").read_text().splitlines()] == ["alice"]


# Traces

TRACED = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

provider = TracerProvider()
spans = open({spans!r}, "a")
exporter = ConsoleSpanExporter(out=spans, formatter=lambda span: span.to_json(indent=None) + "\\n")
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
from quire.cli import main
main()
"""


async def test_a_span_of_a_call_has_the_notebook_the_run_and_the_outcome(data_dir: Path, tmp_path: Path) -> None:
    spans = tmp_path / "spans"
    command = ("-c", TRACED.format(spans=str(spans)))
    async with stdio_client(data_dir, command=command) as client:
        done = await call(client, "execute", code="secret = 'not in a span'")
        await call(client, "execute", code="1", notebook="nowhere")
        await call(client, "list_notebooks")
    found = [json.loads(line) for line in spans.read_text().splitlines()]
    calls = [each for each in found if each["attributes"].get("mcp.method.name") == "tools/call"]
    assert [each["name"] for each in calls] == ["tools/call execute", "tools/call execute", "tools/call list_notebooks"]
    ours: list[dict[str, Any]] = [
        {key: value for key, value in each["attributes"].items() if key.startswith("quire.")} for each in calls
    ]
    assert ours[0].pop("quire.run") and not done.is_error
    assert ours == [
        {"quire.outcome": "ok", "quire.notebook": "main", "quire.cell": 0},
        {"quire.outcome": "refused"},
        {"quire.outcome": "ok"},
    ]
    assert "not in a span" not in spans.read_text()
    assert not any(each["events"] for each in calls)  # an exception's message may quote code
