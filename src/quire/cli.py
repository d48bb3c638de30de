"""The command line: argv and environment to Settings, then run."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire import __version__, config_command, jupyter_mcp_server, platform_compat
from quire.core.errors import QuireError
from quire.frontends.terminal.usage import Parser
from quire.settings import BadSetting, Settings, config_file, load
from quire.shutdown import Shutdown

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from fastmcp.server.auth import AuthProvider

    from quire.core.app import App
    from quire.frontends.http.serve import HttpAccess

    Serve = Callable[[App, FastMCP[Any]], Awaitable[None]]
    Ready = tuple[Serve, AuthProvider | None]  # and how the server authenticates callers


_PEER = "Serve MCP with the options and variables of jupyter-mcp-server"
_RUN = "Run a notebook or a script from the first cell to the last"


def main(argv: list[str] | None = None) -> None:
    """Run the command line. `quire` without a command serves MCP over stdio: client configurations start it."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        parsed = parser().parse(arguments or ["serve", "--server-transport", "stdio"])
        code = parsed.command(parsed)
    except (BadSetting, QuireError) as error:
        print(f"quire: {error.for_person if isinstance(error, QuireError) else error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        code = 130
    sys.exit(code or 0)


def parser() -> Parser:
    top = Parser(prog="quire", description="MCP server that runs code of AI agents in notebooks.")
    top.add_argument("--version", action="version", version=f"quire {__version__}")
    commands = top.add_subparsers(metavar="COMMAND")
    common = Parser(add_help=False)
    config_command.add_common_flags(common)

    def command(name: str, run: Callable[[argparse.Namespace], int | None], text: str) -> Parser:
        each = commands.add_parser(name, help=text, description=text, parents=[common])
        each.set_defaults(command=run, parser=each)
        return each

    config_command.add_flags(command("serve", _serve, "Serve MCP over stdio or HTTP"))
    demo = commands.add_parser("demo", help="Show a tour in the terminal, through a real MCP client")
    demo.set_defaults(command=_demo, parser=demo)
    execute = command("exec", _exec, "Run code in a notebook")
    execute.add_argument("code", help="Python source, or - to read it from standard input")
    execute.add_argument("--notebook", default="main", metavar="NAME")
    execute.add_argument("--timeout", type=float, metavar="SECONDS")
    run = commands.add_parser("run", help=_RUN, description=_RUN)
    run.set_defaults(command=_run_file, parser=run)
    run.add_argument("file", metavar="NOTEBOOK.ipynb|SCRIPT.py", help="Document to run; - reads it from standard input")
    run.add_argument("-o", "--output", metavar="OUT", help="File to write while cells run; - for standard output")
    run.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE", help="Set a parameter")
    run.add_argument("--timeout", type=float, metavar="SECONDS", help="Timeout of each cell; no limit by default")
    run.add_argument("--allow-errors", action="store_true", help="Continue after a cell that raises an exception")
    command("list", _list, "List notebooks")
    export = command("export", _export, "Write a notebook as ipynb, script, Markdown or HTML")
    export.add_argument("name")
    written = "File to write: .ipynb, .py, .md or .html. Default: ipynb to standard output"
    export.add_argument("-o", "--output", type=Path, metavar="FILE", help=written)
    state = command("state", _state, "Show what is on disk of a notebook")
    state.add_argument("name")
    save = command("save", _save, "Save a notebook's namespace under a name")
    save.add_argument("name")
    save.add_argument("--as", dest="state", default="default", metavar="STATE")
    restore = command("restore", _restore, "Restore a notebook's namespace to a saved state")
    restore.add_argument("name")
    restore.add_argument("--state", default="default", metavar="STATE")
    restore.add_argument("--file", type=Path, metavar="FILE", help="Run a readable state file instead")
    restore.add_argument("--trust", action="store_true", help="Allow the code of --file to run")
    gc_ = command("gc", _gc, "Delete chunks that no snapshot uses")
    gc_.add_argument("--dry-run", action="store_true", help="Only report their size")
    _capability_arguments(command("capability", _capability, "Manage MCP servers that code calls"))
    _token_arguments(command("token", _token, "Manage tokens of users over HTTP"))
    install = command("install", _install, "Add Quire to a client's configuration; other servers in it stay")
    install.add_argument("client")
    install.add_argument("--print", action="store_true", dest="only_print", help="Print it instead of writing it")
    install.add_argument("--name", default="quire", help="Name of the server in the client")
    _audit_command(command("audit", _audit, "Show calls from the audit log"))
    settings = "Show and change settings"
    config_command.add_actions(commands.add_parser("config", help=settings, description=settings), common)
    command("assets", _assets, "Build and compile the WebAssembly programs before their first use")
    command("doctor", _doctor, "Check the environment and report problems")
    jupyter_mcp_server.add_arguments(command("jupyter-mcp-server", _jupyter_mcp_server, _PEER))
    return top


def _capability_arguments(capability: argparse.ArgumentParser) -> None:
    capability.add_argument("action", choices=("list", "add", "import", "remove"), help="What to do")
    capability.add_argument(
        "names", nargs="*", metavar="NAME", help="Name of the capability; for import: CLIENT|FILE SERVER…"
    )
    capability.add_argument("--command", dest="server_command", metavar="LINE", help="Command that starts the server")
    capability.add_argument("--url", help="Address of the server")
    capability.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="For --command; env:NAME as a reference",
    )
    capability.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="For --url")


def _token_arguments(token: argparse.ArgumentParser) -> None:
    token.add_argument("action", choices=("add", "list", "remove"), help="What to do")
    token.add_argument("name", nargs="?", metavar="NAME", help="Name of the user")
    token.add_argument("--admin", action="store_true", help="The user may do what the local user may")


def _audit_command(audit: argparse.ArgumentParser) -> None:
    audit.add_argument("--who", metavar="PRINCIPAL")
    audit.add_argument("--tool", metavar="TOOL", help="Name of the tool; * matches anything")
    audit.add_argument("--notebook", metavar="NAME")
    audit.add_argument("--outcome", metavar="OUTCOME", help="ok, error, refused, …")
    audit.add_argument("--kind", choices=("call", "capability"), help="Calls of clients, or of cells to capabilities")
    audit.add_argument("--since", metavar="WHEN", help="90s, 10m, 2h, 7d, or 2026-11-16T08:00")
    audit.add_argument(
        "--limit",
        type=int,
        default=50,
        metavar="N",
        help="Show the last N calls; default 50, 0 shows all",
    )
    audit.add_argument("--follow", action="store_true", help="Also show new calls until Ctrl-C")
    audit.add_argument("--json", action="store_true", help="Print the lines of the log")


def _settings(parsed: argparse.Namespace) -> Settings:
    return load(config_command.given_flags(parsed), config=parsed.config)


def _serve(parsed: argparse.Namespace) -> int:
    settings = _settings(parsed)
    return _run_server(settings, lambda: (_over_http if settings.server.transport == "http" else _over_stdio)(settings))


def _jupyter_mcp_server(parsed: argparse.Namespace) -> int:
    start = jupyter_mcp_server.start(vars(parsed), os.environ)
    settings = load({**start.settings, **config_command.given_flags(parsed)}, config=parsed.config)

    def ready() -> Ready:
        from quire import compose

        if settings.server.transport == "http":
            serve, auth = _over_http(settings, start.with_token(compose.http_access(settings)))
        else:
            serve, auth = _over_stdio(settings)

        async def serve_document(app: App, server: FastMCP[Any]) -> None:
            await start.open_document(app, server)
            await serve(app, server)

        return serve_document, auth

    return _run_server(settings, ready)


def _run_server(settings: Settings, ready: Callable[[], Ready]) -> int:
    """Open an App and serve it with what `ready` returns, until a signal or the end of stdin."""
    platform_compat.use_one_memory_arena()
    logging.basicConfig(level=settings.server.log_level.upper(), stream=sys.stderr)
    gc.disable()  # modules stay loaded: collecting garbage among them takes a tenth of the time to load them
    # imported before anything is opened: until then a signal ends the process immediately
    from quire import compose

    serve, auth = ready()
    running: list[App] = []

    def announce_end() -> None:
        for app in running:
            app.runs.announce_shutdown()

    shutdown = Shutdown(announce_end, settings.server.shutdown_stall_seconds)

    async def main() -> int:
        async with compose.app(settings) as app:
            running.append(app)
            server = compose.mcp(app, settings, auth)
            gc.freeze()  # modules stay loaded: collections can skip them
            gc.enable()
            await serve(app, server)
            shutdown.begin()  # the client closed stdin
        return 0

    return int(shutdown.run(main))


def _over_stdio(settings: Settings) -> Ready:
    from quire.frontends.mcp import stdio
    from quire.frontends.terminal import greeting

    async def serve(app: App, server: FastMCP[Any]) -> None:
        if sys.stdin.isatty():
            greeting.show_stdio()
        await stdio.serve(server, settings.limits.max_request_bytes)

    return serve, None


def _over_http(settings: Settings, access: HttpAccess | None = None) -> Ready:
    from quire import compose
    from quire.frontends.http import probes
    from quire.frontends.http.serve import serve as serve_http
    from quire.frontends.terminal import greeting

    access = access or compose.http_access(settings)

    async def serve(app: App, server: FastMCP[Any]) -> None:
        probes.register(server, app)
        await serve_http(
            server,
            host=settings.server.host,
            port=settings.server.port,
            access=access,
            log_level=settings.server.log_level,
            limits=compose.http_limits(settings),
            listening=lambda url: greeting.show(url, app.about),
        )

    return serve, access.auth


def _demo(parsed: argparse.Namespace) -> int:
    from quire.frontends.terminal import demo

    return int(Shutdown().run(demo.tour))


def _with_app(parsed: argparse.Namespace, work: Callable[[App], Awaitable[int | None]], *, kernels: bool = True) -> int:
    """Run `work` with an open App; without `kernels` no kernel can start."""
    from quire import compose

    settings = _settings(parsed)

    async def main() -> int | None:
        async with compose.app(settings, kernels=kernels) as app:
            return await work(app)

    return int(Shutdown(saving_s=settings.server.shutdown_stall_seconds).run(main) or 0)


def _exec(parsed: argparse.Namespace) -> int:
    from quire.frontends.terminal import commands

    code = sys.stdin.read() if parsed.code == "-" else parsed.code
    return _with_app(parsed, lambda app: commands.execute(app, parsed.notebook, code, parsed.timeout))


def _run_file(parsed: argparse.Namespace) -> int:
    from quire import compose
    from quire.frontends.terminal import run

    job = run.job(
        parsed.file,
        output=parsed.output,
        given=parsed.parameter,
        allow_errors=parsed.allow_errors,
        timeout=parsed.timeout,
    )
    _interrupt_on_ctrl_c()
    return asyncio.run(run.run(compose.app(load(job.settings)), job))


def _list(parsed: argparse.Namespace) -> int:
    from quire.frontends.terminal import commands

    return _with_app(parsed, commands.show_notebooks, kernels=False)


def _export(parsed: argparse.Namespace) -> int:
    from quire.frontends.terminal import commands

    return _with_app(parsed, lambda app: commands.export(app, parsed.name, parsed.output), kernels=False)


def _state(parsed: argparse.Namespace) -> int:
    from quire.frontends.terminal import states

    return _with_app(parsed, lambda app: states.show(app, parsed.name), kernels=False)


def _save(parsed: argparse.Namespace) -> int:
    from quire.frontends.terminal import states

    return _with_app(parsed, lambda app: states.save(app, parsed.name, parsed.state))


def _restore(parsed: argparse.Namespace) -> int:
    from quire.frontends.terminal import states

    if parsed.file is not None:
        return _with_app(parsed, lambda app: states.restore_file(app, parsed.name, parsed.file, trust=parsed.trust))
    return _with_app(parsed, lambda app: states.restore(app, parsed.name, parsed.state))


def _gc(parsed: argparse.Namespace) -> int:
    from quire.frontends.terminal import states

    return _with_app(parsed, lambda app: states.sweep(app, dry=parsed.dry_run), kernels=False)


def _capability(parsed: argparse.Namespace) -> int:
    from quire.frontends.terminal import capabilities

    env, headers = capabilities.pairs(parsed.env), capabilities.pairs(parsed.header)
    given = {"command": parsed.server_command, "url": parsed.url, "env": env, "headers": headers}
    given = {key: value for key, value in given.items() if value}
    return _with_app(parsed, lambda app: capabilities.run(app, parsed.action, parsed.names, given), kernels=False)


def _token(parsed: argparse.Namespace) -> int:
    from quire import compose
    from quire.frontends.terminal import tokens

    tokens.run(compose.tokens(_settings(parsed)), parsed.action, parsed.name, admin=parsed.admin)
    return 0


def _audit(parsed: argparse.Namespace) -> int:
    from quire import audit_setup
    from quire.core.ops.audit import AuditFilter
    from quire.frontends.terminal import audit

    wanted = AuditFilter(
        who=parsed.who,
        tool=parsed.tool,
        notebook=parsed.notebook,
        outcome=parsed.outcome,
        kind=parsed.kind,
        since=audit.moment(parsed.since),
    )
    log = audit_setup.open_files(_settings(parsed))
    _interrupt_on_ctrl_c()
    return audit.show(log, wanted, limit=parsed.limit, follow=parsed.follow, as_json=parsed.json)


def _interrupt_on_ctrl_c() -> None:
    """Ctrl-C raises KeyboardInterrupt from now on, so that files are closed and temporary ones deleted."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _install(parsed: argparse.Namespace) -> int:
    from quire.frontends.terminal import commands

    return commands.install(parsed.client, parsed.name, config_command.data_dir(parsed), only_print=parsed.only_print)


def _assets(parsed: argparse.Namespace) -> int:
    from quire import compose

    settings = _settings(parsed)
    _interrupt_on_ctrl_c()
    compose.assets(settings, print)
    return 0


def _doctor(parsed: argparse.Namespace) -> int:
    from quire.doctor import examine
    from quire.frontends.terminal.doctor import show

    settings = _settings(parsed)
    config = config_file(parsed.config)
    where = f"{config}{'' if config.exists() else ' (not there)'}"

    async def main() -> int:
        return show([*await examine(settings), ("settings file", None, where)])

    return int(Shutdown().run(main))
