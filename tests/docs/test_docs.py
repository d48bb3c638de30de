"""The documents are true: commands and programs run, tables equal the code, links work."""

from __future__ import annotations

import argparse
import ast
import html
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from fastmcp import Client
from pydantic_core import PydanticUndefined

import quire
from quire import cli, compose
from quire.core.limits.sandbox_layers import LAYERS
from quire.core.model import LOCAL
from quire.core.ops import audit
from quire.frontends import python as python_api
from quire.frontends.http import metrics
from quire.frontends.terminal.demo import STEPS
from quire.settings import Settings, load
from quire.settings.names import FLAGS, SETTINGS, Setting
from tests.support import preloaded, survival_table
from tests.support.security.attacks import ATTACKS
from tests.support.servers import server_environment, stdio_client
from tests.support.waiting import DEADLINE
from tests.support.wasm.assets import assets_dir, science_assets_dir

ROOT = Path(__file__).parents[2]
DOCS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(text) if kind == language]


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one of its level or above."""
    level = heading.split(" ")[0]
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {heading!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, heads and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = [number for number, line in enumerate(lines) if set(line) <= set("|- ")]
    heads = {number + by for number in rules for by in (-1, 0)}
    return [[cell.strip() for cell in line.strip("|").split("|")] for n, line in enumerate(lines) if n not in heads]


def code(text: str) -> str:
    """What a cell of a table has between backquotes, where that is all it has."""
    return text.strip("`")


# Commands and programs


def programs() -> Iterator[Any]:
    """All but those that are a whole example: test_examples.py runs them."""
    examples = {path.read_text("utf-8") for path in (ROOT / "examples").glob("*.py")}
    for path in DOCS:
        for number, body in enumerate(blocks(path.read_text("utf-8"), "python")):
            if body not in examples:
                yield pytest.param(body, id=f"{name_of(path)}-{number}")


@pytest.mark.parametrize("program", list(programs()))
def test_a_program_in_a_document_runs(program: str, data_dir: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=server_environment(data_dir, **_made(program)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr


def _made(text: str) -> dict[str, Path]:
    """Where what runs in WebAssembly is, for a document that speaks of it."""
    if "wasm.python = science" in text:
        return {"assets_dir": science_assets_dir()}
    return {"assets_dir": assets_dir()} if "wasm-" in text else {}


def commands(path: Path) -> list[tuple[str, str]]:
    """Our own commands among a document's, each with the output shown below it."""
    shown = "".join(f"\n{block}" for block in blocks(path.read_text("utf-8"), "console"))
    found = [each.partition("\n") for each in re.split(r"^\$ ", shown, flags=re.MULTILINE)[1:]]
    return [(line, output.strip("\n")) for line, _, output in found if line.split()[0] == "quire"]


@pytest.mark.parametrize("path", [pytest.param(path, id=name_of(path)) for path in DOCS if commands(path)])
def test_the_commands_of_a_document_run_and_print_what_is_shown(path: Path, data_dir: Path, tmp_path: Path) -> None:
    moved = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME")
    made = _made(str(commands(path)))
    every = server_environment(data_dir, auto_save=DEADLINE, **made)
    env = {name: value for name, value in every.items() if name not in moved}
    env |= {"XDG_CONFIG_HOME": str(tmp_path / "config"), "PATH": f"{preloaded.folder_of_quire()}:{env['PATH']}"}
    for command, output in commands(path):
        if " install " in command:
            env["HOME"] = str(tmp_path)
        if "--server-transport http" in command:
            _listens(f"{command} --server-port 0", env, tmp_path)
            continue
        done = subprocess.run(
            command, shell=True, env=env, cwd=tmp_path, input="", capture_output=True, text=True, timeout=DEADLINE
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert _settled(output, data_dir) in _settled(done.stdout + done.stderr, data_dir), command


def _listens(command: str, env: dict[str, str], cwd: Path) -> None:
    with subprocess.Popen(f"exec {command}", shell=True, env=env, cwd=cwd, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        first = server.stderr.readline()
        server.terminate()
        assert first.startswith("Quire listens at http://127.0.0.1:"), first + server.stderr.read()


RESTART = "# The server "  # … ends and is started again, with setting = value.


def calls(path: Path) -> str:
    """The tool calls a document shows, each with the answer below it: one conversation."""
    return "".join(block for block in blocks(path.read_text("utf-8"), "text") if block.startswith(("> ", RESTART)))


def test_readme_shows_calls_of_an_agent() -> None:
    assert calls(ROOT / "README.md") == blocks(section(read("README.md"), "## First use"), "text")[0]


def test_readme_has_at_most_150_lines() -> None:
    assert len(read("README.md").splitlines()) <= 150


def _with_calls(path: Path) -> Any:
    """The page on the second WebAssembly Python is in the soak."""
    marks = [pytest.mark.soak(sample=True)] if "wasm.python = science" in calls(path) else []
    return pytest.param(path, id=name_of(path), marks=marks)


@pytest.mark.parametrize("path", [_with_calls(path) for path in DOCS if calls(path)])
async def test_the_calls_of_a_document_are_answered_as_shown(path: Path, data_dir: Path, science: None) -> None:
    """Where it says so, by another server that was started since. None takes snapshots by itself before its end: which
    there are would depend on the moment."""
    for part in re.split(rf"^{RESTART}", f"\n{calls(path)}", flags=re.MULTILINE):
        how, _, shown = part.partition("\n")
        given = {name.replace(".", "_"): value for name, value in re.findall(r"([\w.]+) = (\w+)", how)}
        settings = {**given, **_made(calls(path))}
        async with stdio_client(data_dir, snapshot_interval=0, auto_save=DEADLINE, **settings) as client:
            for step in re.split(r"^> ", shown, flags=re.MULTILINE)[1:]:
                await _is_answered(client, step, data_dir)


async def _is_answered(client: Client[Any], step: str, data_dir: Path) -> None:
    call, _, answer = step.partition("\n")
    said = ast.parse(call, mode="eval").body
    assert isinstance(said, ast.Call) and isinstance(said.func, ast.Name)
    arguments = {str(each.arg): ast.literal_eval(each.value) for each in said.keywords}
    result = await client.call_tool(said.func.id, arguments, raise_on_error=False)
    got = [block.text if block.type == "text" else f"<{block.mime_type}>" for block in result.content]
    assert _settled("\n".join(got), data_dir) == _settled(answer.rstrip("\n"), data_dir), call


def _settled(text: str, data_dir: Path) -> str:
    """Without what differs from run to run: ids, times, seconds, sizes, the data directory."""
    text = re.sub(r"\b(?:[0-9a-f]{32}|[0-9a-f]{12})\b", "ID", text.replace(str(data_dir), "DATA_DIR"))
    text = re.sub(r"-once-[0-9a-f]{8}\b", "-once-ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\d[\d.e-]* s\b", "N s", text)
    text = re.sub(r"\d[\d.]* [KMGT]iB", "N MiB", text)
    text = re.sub(r"\d[\d,]* (bytes|chunks?)\b", r"N \1", text)
    text = re.sub(r"^( *TIME .*?) +[\d,]+ +[\d,]+ *$", r"\1 N N", text, flags=re.MULTILINE)  # quire state
    text = re.sub(r"(?<=\S) +(?= |$)", "", text, flags=re.MULTILINE)  # the widths of its columns
    return re.sub(r"(png|svg) \d+x\d+, N bytes", r"\1", text)


def test_the_picture_shows_every_step_of_the_demo() -> None:
    drawn = html.unescape(re.sub(r"<[^>]*>", "", read("docs/images/demo.svg")))
    drawn = re.sub(r"\s", "", drawn)
    assert [step.title for step in STEPS if re.sub(r"\s", "", step.title) not in drawn] == []


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in (ROOT / "examples").glob("*.py")])
def test_every_example_is_linked_from_its_page(path: Path) -> None:
    assert f"](../../examples/{path.name})" in read(f"docs/howto/{path.stem}.md")


async def test_the_state_file_on_the_page_is_what_is_saved(data_dir: Path) -> None:
    (shown,) = (json.loads(block) for block in blocks(read("docs/howto/state.md"), "json"))
    async with quire.open(data_dir, kernel_preload="") as q:
        book = await q.notebook(shown["notebook"])
        for source in shown["history"]:
            await book.add_cell(source)
        snapshot = await book.save(shown["name"])
    (file,) = data_dir.rglob(f"{shown['name']}.json")
    saved = json.loads(file.read_text("utf-8"))
    assert saved["variables"]["squares"]["snapshot"] == snapshot.id
    for each in (saved, shown):
        del each["saved_at"], each["python"], each["variables"]["squares"]["snapshot"]
    assert saved == shown


# Words and links


@pytest.mark.parametrize("path", [pytest.param(path, id=name_of(path)) for path in DOCS])
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    text = FENCE.sub("", path.read_text("utf-8"))
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (path.parent / place).resolve() if place else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_document_names_a_place_of_the_machine_it_was_written_on() -> None:
    places = (str(ROOT), str(Path.home()), "/tmp/", "/root/")
    texts = {name_of(path): path.read_text("utf-8") for path in [*DOCS, *(ROOT / "docs").rglob("*.svg")]}
    assert [(name, place) for name, text in texts.items() for place in places if place in text] == []


# Settings and the command line


def test_the_page_of_settings_equals_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    page = rows(read("docs/settings.md"))
    documented = [(code(name), default, meaning, code(old)) for name, default, _, meaning, old in page]
    assert documented == [(each.name, _default(each), each.description, each.old) for each in SETTINGS]
    takes = {code(name): takes for name, _, takes, _, _ in page}
    for setting in SETTINGS:
        for choice in get_args(setting.field.annotation):
            assert not isinstance(choice, str) or f"`{choice}`" in takes[setting.name]


def _default(setting: Setting) -> str:
    field, name = setting.field, setting.name
    if name == "kernel.python":
        assert field.get_default(call_default_factory=True) == sys.executable
        return "the Python that runs Quire"
    if name == "limits.max_memory_bytes":
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        assert field.get_default(call_default_factory=True) == memory * 3 // 4
        return "three quarters of the machine's memory"
    if name == "limits.max_memory_bytes_per_user":
        assert field.get_default(call_default_factory=True) == Settings().limits.max_memory_bytes
        return "three quarters of the machine's memory"
    if name == "limits.min_free_memory_bytes":
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        assert field.get_default(call_default_factory=True) == memory // 10
        return "a tenth of the machine's memory"
    if name == "limits.max_request_bytes":
        assert load({"limits_max_code_bytes": 5}, environ={}).limits.max_request_bytes == 15 + 2**20
        return "three times `limits.max_code_bytes`, and 1 MiB"
    value = field.get_default(call_default_factory=True)
    assert value is not PydanticUndefined
    match value:
        case None:
            return "unset"
        case ():
            return "none"
        case tuple():
            return f"`{','.join(value)}`"
        case _:
            return f"`{str(value).replace(str(Path.home()), '~')}`"


def test_the_settings_file_on_the_page_is_taken(tmp_path: Path) -> None:
    (text,) = blocks(read("docs/settings.md"), "toml")
    (tmp_path / "quire.toml").write_text(text)
    taken = load(environ={}, config=tmp_path / "quire.toml")
    assert (taken.server.toolsets, taken.kernel.preload) == (("repl",), ("numpy",))
    assert (taken.kernel.cell_timeout_seconds, taken.kernel.idle_timeout_seconds) == (120, 0)


def test_the_settings_files_on_the_page_of_users_are_taken(tmp_path: Path) -> None:
    ways = []
    for text in blocks(read("docs/howto/users.md"), "toml"):
        (tmp_path / "quire.toml").write_text(text)
        ways.append(load(environ={}, config=tmp_path / "quire.toml").auth.method)
    assert ways == ["tokens", "jwt", "oidc"]


def test_the_limits_on_the_page_are_taken(tmp_path: Path) -> None:
    (text,) = blocks(read("docs/howto/limits.md"), "toml")
    (tmp_path / "quire.toml").write_text(text)
    taken = load(environ={}, config=tmp_path / "quire.toml")
    limits = taken.limits
    assert (limits.max_kernels_per_user, limits.max_runs, limits.requests_burst) == (10, 16, 100)


def _commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = [each for each in cli.parser()._actions if isinstance(each, argparse._SubParsersAction)]
    return dict(found.choices)


def test_page_of_commands_names_every_command_and_no_other() -> None:
    named = [code(row[0]).split() for row in rows(read("docs/commands.md"))]
    assert [words[1] for words in named if len(words) > 1] == list(_commands())


def test_every_setting_is_a_flag_of_serve() -> None:
    flags = {flag for action in _commands()["serve"]._actions for flag in action.option_strings}
    assert {FLAGS.new(setting) for setting in SETTINGS} - flags == set()


# Tools, resources, prompts


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client[Any]]:
    settings = load(
        {"store_data_dir": tmp_path_factory.mktemp("server") / "data", "server_toolsets": "all"}, environ={}
    )
    async with compose.app(settings, kernels=False) as app, Client(compose.mcp(app, settings)) as client:
        yield client


PAGE = read("docs/tools.md")
HINTS = {
    "read-only": "read_only_hint",
    "destructive": "destructive_hint",
    "idempotent": "idempotent_hint",
    "open world": "open_world_hint",
}


async def test_the_page_of_tools_names_every_tool_and_parameter_and_no_other(server: Client[Any]) -> None:
    documented = {
        name: {code(row[0]): row[2] for row in rows(section(PAGE, f"### `{name}`"))}
        for name in re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)
    }
    real = {
        tool.name: {each: _given(tool, each) for each in tool.input_schema["properties"]}
        for tool in await server.list_tools()
    }
    assert documented == real
    assert list(documented) == list(real)


def _given(tool: Any, parameter: str) -> str:
    if parameter in tool.input_schema.get("required", []):
        return "required"
    match tool.input_schema["properties"][parameter].get("default"):  # null is not said
        case None:
            return "none"
        case bool() as value:
            return f"`{str(value).lower()}`"
        case str() as value:
            return f'`"{value}"`'
        case value:
            return f"`{value}`"


async def test_overview_of_tools_names_every_tool_and_no_other(server: Client[Any]) -> None:
    named = [code(row[0]) for row in rows(section(PAGE, "## All tools"))]
    assert sorted(named) == sorted(tool.name for tool in await server.list_tools())


async def test_the_hints_of_every_tool_are_those_on_the_page(server: Client[Any]) -> None:
    for tool in await server.list_tools():
        said = re.search(r"^Result: .* Hints: (.*)\.$", section(PAGE, f"### `{tool.name}`"), re.MULTILINE)
        assert said and tool.annotations
        named = set() if said[1] == "none" else set(said[1].split(", "))
        assert {hint for hint, field in HINTS.items() if getattr(tool.annotations, field)} == named, tool.name


async def test_the_fields_of_every_result_are_those_on_the_page(server: Client[Any]) -> None:
    for tool in await server.list_tools():
        result = re.search(r"^Result: \[(\w+)\]", section(PAGE, f"### `{tool.name}`"), re.MULTILINE)
        if result is None:
            assert tool.output_schema is None, tool.name
            continue
        fields = {code(field): meaning for field, meaning in rows(section(PAGE, f"### {result[1]}"))}
        assert tool.output_schema and list(fields) == list(tool.output_schema["properties"]), tool.name
        optional = {field for field, meaning in fields.items() if meaning.startswith("optional")}
        assert optional == set(fields) - set(tool.output_schema["required"]), tool.name


async def test_the_page_names_every_resource_and_prompt_and_no_other(server: Client[Any]) -> None:
    addresses = [str(each.uri) for each in await server.list_resources()]
    addresses += [each.uri_template for each in await server.list_resource_templates()]
    assert sorted(code(row[0]) for row in rows(section(PAGE, "## Resources"))) == sorted(addresses)
    real = {
        prompt.name: ", ".join(f"`{each.name}`" + ("" if each.required else " (optional)") for each in prompt.arguments)
        for prompt in await server.list_prompts()
    }
    assert {code(name): arguments for name, arguments, _ in rows(section(PAGE, "## Prompts"))} == real


@pytest.mark.parametrize("kind", [python_api.Quire, python_api.Notebook, python_api.Cell])
def test_the_page_on_embedding_names_all_an_object_has(kind: type) -> None:
    (said,) = [row[1] for row in rows(read("docs/howto/embed.md")) if code(row[0]) == kind.__name__]
    named = set(re.findall(r"`(\w+)", said))
    assert named == {name for name in vars(kind) if not name.startswith("_")}


def test_the_tables_of_what_survives_are_those_that_are_tried() -> None:
    assert survival_table.table() in section(read("docs/survival.md"), "## A run, a crash, a restart")
    assert survival_table.kinds() in section(read("docs/survival.md"), "## Kinds of objects")
    assert f"| {survival_table.count()} |" in section(read("docs/SPECIFICATION.md"), "## Numbers")


# Architecture and specification


def test_sandbox_page_names_every_layer_and_every_attack() -> None:
    page = read("docs/howto/sandbox.md")
    assert [code(name) for name, *_ in rows(section(page, "## Sandbox layers"))] == list(LAYERS)
    tried = [[name, wall, f"`{said}`"] for name, (wall, _, said) in ATTACKS.items()]
    assert rows(read("docs/attacks.md")) == tried


def test_architecture_has_at_most_200_lines_and_names_every_folder() -> None:
    page = read("docs/architecture.md")
    assert len(page.splitlines()) <= 200
    for part, folder in ((section(page, "## Layers"), ""), (section(page, "## core"), "core")):
        folders = {path.parent.name for path in (ROOT / "src/quire" / folder).glob("*/*.py")}
        assert [name for name in sorted(folders) if not re.search(rf"\b{name}\b", part)] == []


def test_architecture_names_only_files_that_exist() -> None:
    sources = [name_of(path) for path in (ROOT / "src/quire").rglob("*.py")]
    named = re.findall(r"[\w/]+\.py\b", read("docs/architecture.md"))
    assert len(named) > 20
    missing = [
        name for name in named if not (ROOT / name).exists() and not any(path.endswith(f"/{name}") for path in sources)
    ]
    assert missing == []


def test_every_promise_cites_a_proof_that_exists() -> None:
    page = read("docs/SPECIFICATION.md")
    promises = [(number, proof) for number, *_, proof in rows(section(page, "## Numbers"))]
    promises += re.findall(r"^- \*\*(\w+)\*\* (.*\n(?:  .*\n)*)", page, re.MULTILINE)
    numbers = [number for number, _ in promises]
    assert len(numbers) > 200 and len(set(numbers)) == len(numbers)
    for number, proof in promises:
        tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", proof)
        benches = re.findall(r"`bench/(\w+)\.py`", proof)
        assert tests or benches, f"{number} has no proof"
        for file, name in tests:
            assert re.search(rf"^(async )?def {name}\(", read(file), re.MULTILINE), f"{number}: {file}::{name}"
        for name in benches:
            assert f'"{name}"' in read("bench/__main__.py") and (ROOT / "bench" / f"{name}.py").exists(), number


def test_monitoring_page_names_every_metric_field_and_outcome() -> None:
    page = read("docs/monitoring.md")
    named = {name for row in rows(section(page, "## Metrics")) for name in re.findall(r"`(\w+)`", row[0])}
    assert named == metrics.HELP.keys()
    cells = [re.findall(r"`(\w+)`", row[0]) for row in rows(section(page, "## Audit log"))]
    said = [name for names in cells for name in names]
    record = audit.Record(at=0, kind="call", who=LOCAL, via="", tool="", outcome="", ms=0)
    fields = list(json.loads(audit.format_line(record)))
    assert said[: len(fields)] == fields and sorted(said[len(fields) :]) == sorted(audit.OUTCOMES)
