"""A relayed capability as a Python object, and each of its tools as a method of it."""

from __future__ import annotations

import contextlib
import difflib
import inspect
from typing import Any, NoReturn, Protocol

from quire.tool_descriptions import schemas, tools
from quire.tool_descriptions.tools import Parameter
from quire.worker.capabilities import plain_values, results, typed
from quire.worker.capabilities.errors import CapabilityGone, ToolError, WrongArguments
from quire.worker.capabilities.results import Record, Resource

_MAX_SHOWN_METHODS = 30  # methods in a repr


class Hub(Protocol):
    """What stubs need."""

    caps: Any  # the `caps` object

    def ask(self, do: str, **words: Any) -> dict[str, Any]: ...

    async def ask_async(self, do: str, **words: Any) -> dict[str, Any]: ...

    def refresh(self) -> None:
        """Refresh all capabilities from the server."""


class Capability:
    __module__ = "builtins"

    def __init__(self, hub: Hub, name: str) -> None:
        self._hub = hub
        self._name = name
        self._entry: dict[str, Any] | None = None  # None: not installed
        self._tools: dict[str, dict[str, Any]] | None = None  # by Python name, computed on first use
        self._python: dict[str, str] = {}  # Python name of a tool by its own name
        self._methods: dict[str, Method] = {}  # by own name of the tool

    def _apply(self, entry: dict[str, Any] | None) -> None:
        if entry != self._entry:
            self._entry, self._tools = entry, None
            for method in self._methods.values():
                method._forget()

    def _known(self) -> dict[str, dict[str, Any]]:
        if self._tools is None:
            self._tools = tools.methods(self._entry)
            self._python = {tool["name"]: name for name, tool in self._tools.items()}
        return self._tools

    def _method(self, own_name: str) -> Method:
        return self._methods.setdefault(own_name, Method(self, own_name))

    def _installed(self) -> dict[str, Any]:
        if self._entry is None:
            raise CapabilityGone(
                f"{self._name} is not installed. caps shows what is; "
                f"caps.install({self._name!r}, command) or caps.install({self._name!r}, url=...) installs it again.",
            )
        return self._entry

    def __getattr__(self, name: str) -> Method:
        if name.startswith("__"):
            raise AttributeError(name)  # probes for special methods
        found = self._known().get(name)
        if found is None and not name.startswith("_"):
            with contextlib.suppress(ToolError):
                self._hub.refresh()  # its tools may have changed since the cell began
            self._installed()
            found = self._known().get(name)
        if found is None:
            _no_method(self._name, name, list(self._known()))
        return self._method(found["name"])

    def __dir__(self) -> list[str]:
        return [*self._known(), *self._own()]

    def _own(self) -> list[str]:
        entry = self._entry or {}
        optional = [
            *("resources", "read") * bool(entry.get("resources")),
            *("prompts", "prompt") * bool(entry.get("prompts")),
        ]
        return ["describe", *optional]

    def __repr__(self) -> str:
        if self._entry is None:
            return f"<capability {self._name}, not installed>"
        lines = tools.overview({**self._entry, "tools": self._entry.get("tools", [])[:_MAX_SHOWN_METHODS]})
        more = len(self._known()) - _MAX_SHOWN_METHODS
        return f"{lines}\n  ... {more} more: dir({self._name}), caps.search(...)" if more > 0 else lines

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self.describe()

    def __reduce__(self) -> Any:
        return (self._hub.caps._capability, (self._name,))

    def __call__(self, *arguments: Any, **named: Any) -> NoReturn:
        raise TypeError(
            f"{self._name} is a capability; call one of its methods: {', '.join(list(self._known())[:20])}."
        )

    # Common methods

    def describe(self, method: str | None = None) -> str:
        """The documentation of it or of one of its methods."""
        entry = self._installed()
        if method is not None:
            return str(getattr(self, method).__doc__)
        about = entry.get("about")
        return "\n\n".join(filter(None, (tools.overview(entry), about.strip() if isinstance(about, str) else "")))

    def resources(self) -> list[Any]:
        """Its resources and resource templates."""
        found = self._ask("resources")
        resources = [resource for resource in found.get("resources") or () if isinstance(resource, dict)]
        patterns = [template for template in found.get("templates") or () if isinstance(template, dict)]
        return [*(Resource(self._name, resource) for resource in resources), *map(results.records, patterns)]

    def read(self, uri: str) -> Any:
        """Read a resource: text, bytes, or a list of these."""
        return results.contents(self._name, self._ask("read", given={"uri": str(uri)}))

    def prompts(self) -> list[Any]:
        found = results.records(self._ask("prompts").get("prompts"))
        return found if isinstance(found, list) else []

    def prompt(self, name: str, /, **arguments: Any) -> list[Record]:
        """The messages of a prompt with these arguments."""
        given = {key: str(value) for key, value in arguments.items()}
        return results.prompt(self._name, self._ask("prompt", method=name, given=given))

    def _ask(self, do: str, **words: Any) -> dict[str, Any]:
        self._installed()
        try:
            return self._hub.ask(do, capability=self._name, **words)
        except ToolError as error:
            raise _with_call(error, f"{self._name}.{do}", words.get("given", {})) from None


def _no_method(capability: str, name: str, known: list[str]) -> NoReturn:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or [
        candidate for candidate in known if name.lower() in candidate.lower()
    ]
    nearest = f" The nearest: {', '.join(near[:5])}." if near else ""
    raise AttributeError(f"{capability} has no method {name!r}.{nearest} dir({capability}) or {capability} lists all.")


class Method:
    """A tool. Call it, or await `.aio(...)`; `_timeout=` gives the seconds it may take."""

    __module__ = "builtins"

    def __init__(self, capability: Capability, own_name: str) -> None:
        self._capability = capability
        self._own_name = own_name
        self._forget()

    def _forget(self) -> None:
        self._signature: inspect.Signature | None = None
        self._parameters: list[Parameter] | None = None
        self._returns: Any = None

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        words = self._words(arguments, named)
        try:
            value = self._capability._hub.ask("tool", **words)
        except ToolError as error:
            raise _with_call(error, self._where, words["given"]) from None
        return results.to_python(self._capability._name, self._tool, value)

    async def aio(self, /, *arguments: Any, **named: Any) -> Any:
        """The same as a coroutine, for await and asyncio.gather."""
        words = self._words(arguments, named)
        try:
            value = await self._capability._hub.ask_async("tool", **words)
        except ToolError as error:
            raise _with_call(error, self._where, words["given"]) from None
        return results.to_python(self._capability._name, self._tool, value)

    @property
    def _tool(self) -> dict[str, Any]:
        self._capability._installed()
        found = self._capability._known().get(self.__name__)
        if found is None or found["name"] != self._own_name:
            raise CapabilityGone(f"{self._capability._name} has no tool {self._own_name!r} any more.")
        return found

    @property
    def __name__(self) -> str:
        self._capability._known()
        return self._capability._python.get(self._own_name) or tools.python_name(self._own_name)

    @property
    def _where(self) -> str:
        return f"{self._capability._name}.{self.__name__}"

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return tools.documentation(self._capability._name, self._tool, self.__name__)

    @property
    def returns(self) -> Any:
        """The type of the result: a TypedDict if declared, else text."""
        if self._returns is None:
            shape = tools.result_shape(self._tool)
            self._returns = results.Text if shape is None else typed.python_type(shape, "Result")
        return self._returns

    @property
    def __signature__(self) -> inspect.Signature:
        if self._signature is None:
            schema = self._tool.get("input")
            found = schemas.properties(schema, schema)
            listed = [
                inspect.Parameter(
                    parameter.name,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=inspect.Parameter.empty if parameter.required else parameter.default,
                    annotation=typed.python_type(schemas.shape(found[parameter.original], schema), named=False),
                )
                for parameter in self._known_parameters()
            ]
            if tools.accepts_unknown_arguments(schema):
                more = "more_" if any(parameter.name == "more" for parameter in listed) else "more"
                listed.append(inspect.Parameter(more, inspect.Parameter.VAR_KEYWORD))
            self._signature = inspect.Signature(listed, return_annotation=self.returns)
        return self._signature

    def __get__(self, owner: Any, kind: Any = None) -> Method:
        return self  # like a routine, so that help() shows it as one

    def __repr__(self) -> str:
        try:
            return f"<{self._capability._name}.{tools.summary_line(self._tool, self.__name__)}>"
        except CapabilityGone:
            return f"<{self._where}, gone>"

    def __reduce__(self) -> Any:
        return (self._capability._hub.caps._method, (self._capability._name, self._own_name))

    # Arguments

    def _known_parameters(self) -> list[Parameter]:
        if self._parameters is None:
            self._parameters = tools.parameters(self._tool.get("input"))
        return self._parameters

    def _words(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The call as sent, with arguments by own name as JSON. The server checks them."""
        timeout = named.pop(tools.TIMEOUT, None)
        if timeout is not None and (type(timeout) not in (int, float) or not timeout > 0):
            raise ValueError(f"_timeout= takes seconds, a number over 0, not {timeout!r}.")
        try:
            given = plain_values.to_json(self._bound(arguments, named))
        except plain_values.NotJson as wrong:
            message = tools.argument_error(self._tool, self.__name__, wrong.path, wrong.what)
            raise (TypeError if wrong.typed else ValueError)(f"{self._where}: {message}") from None
        return {
            "capability": self._capability._name,
            "method": self._own_name,
            "given": given,
            "timeout": timeout or 0,
        }

    def _bound(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Arguments by own name. Optional ones that are None are left out if the schema does not allow null."""
        known = self._known_parameters()
        if len(arguments) > len(known):
            self._refuse(f"takes {len(known) or 'no'} argument{'s' * (len(known) != 1)}, not {len(arguments)}")
        bound = {parameter.original: value for parameter, value in zip(known, arguments, strict=False)}
        by_name = {name: item for item in known for name in (item.original, item.name)}
        for name, value in named.items():
            parameter = by_name.get(name)
            if parameter is None and not tools.accepts_unknown_arguments(self._tool.get("input")):
                near = difflib.get_close_matches(name, [candidate.name for candidate in known], n=1, cutoff=0.5)
                self._refuse(f"has no argument {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
            own = parameter.original if parameter is not None else name
            if own in bound:
                self._refuse(f"got {name!r} twice")
            bound[own] = value
        missing = [parameter.name for parameter in known if parameter.required and parameter.original not in bound]
        if missing:
            self._refuse(f"lacks {', '.join(map(repr, missing))}")
        nones = {item.original for item in known if not item.required and "None" not in item.annotation}
        nones -= {parameter.original for parameter in known if parameter.annotation == "Any"}
        return {name: value for name, value in bound.items() if value is not None or name not in nones}

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(f"{self._where} {what}. Its signature: {tools.signature(self._tool, self.__name__)}")


def _with_call(error: ToolError, tool: str, given: dict[str, Any]) -> Exception:
    """The error with tool and arguments, without frames of Quire."""
    error.tool, error.args_given = error.tool or tool, error.args_given or given
    return error.as_builtin() if isinstance(error, WrongArguments) else error.with_traceback(None)
