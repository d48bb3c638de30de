"""What tools answer, as types: each tool's outputSchema is made from these."""

from typing import Any, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict


class ImageReference(TypedDict):
    uri: str
    format: str
    width: int | None
    height: int | None
    size: int
    source: str | None


class OutputInfo(TypedDict):
    type: str
    uri: str
    text: NotRequired[str]
    image: NotRequired[ImageReference]


class CellInfo(TypedDict):
    notebook: str
    cell_id: str
    cell_number: int
    cell_type: str
    state: str
    version: int
    execution_count: int | None
    seconds: float | None
    stale: NotRequired[bool]


class ShownCell(CellInfo):
    outputs: list[dict[str, Any]]  # OutputInfo; said loosely, since clients build types from this on every call
    code: NotRequired[str]
    notice: NotRequired[str]
    ran: NotRequired[list[int]]


class ExecutionResult(TypedDict):
    success: bool
    state: str
    stdout: str
    stderr: str
    return_value: Any
    error_type: str | None
    error_message: str | None
    notebook: str
    cell_id: str
    cell_number: int
    seconds: float | None
    outputs: list[dict[str, Any]]  # as above
    notice: NotRequired[str]


class CellList(TypedDict):
    notebook: str
    total: int
    cells: list[CellInfo]


class NotebookInfo(TypedDict):
    name: str
    runtime: str
    cells: int
    runs: int
    kernel: str
    current: bool
    workspace: str
    protection: str
    branch_of: NotRequired[str]
    wake_seconds: NotRequired[float]


class NotebookList(TypedDict):
    notebooks: list[NotebookInfo]


class FunctionInfo(TypedDict):
    name: str
    signature: str
    docstring: str


class StateInfo(TypedDict):
    notebook: str
    kernel: str
    defined_functions: list[FunctionInfo]
    variables: dict[str, str]
    capabilities: list[str]
    history_length: int
    runtime: str
    sandbox: str
    protection: str


class CapabilityInfo(TypedDict):
    name: str
    server: str
    methods: list[str]


class Uninstalled(TypedDict):
    name: str


class Described(TypedDict):
    text: str


class FoundMethods(TypedDict):
    methods: list[str]


class CheckpointInfo(TypedDict):
    checkpoint: str
    cell_number: int | None
    execution_count: int
    kind: str
    bytes: int
    quality: str
    loses: list[str]
    names: list[str]
    current: bool
    stale: bool


class CheckpointList(TypedDict):
    notebook: str
    protection: str
    checkpoints: list[CheckpointInfo]


class RolledBack(TypedDict):
    notebook: str
    checkpoint: str
    stale_cells: list[int]
    not_restored: list[str]


class SavedState(TypedDict):
    notebook: str
    name: str
    variables: int
    bytes: int
    file: str
    not_saved: list[str]


class Document(TypedDict):
    notebook: str
    cells: int
    uri: str
    path: NotRequired[str]


class RuntimeInfo(TypedDict):
    name: str
    version: str
    packages: list[str]
    layers: dict[str, str]
    sandbox: str
    why_not: str


class RuntimeList(TypedDict):
    runtimes: list[RuntimeInfo]


class SandboxResult(TypedDict):
    success: bool
    state: str
    stdout: str
    stderr: str
    return_value: Any
    language: str
    session_id: str | None
    cell_id: NotRequired[str]  # none of code that was not run
    cell_number: NotRequired[int]
    seconds: NotRequired[float | None]
    outputs: list[dict[str, Any]]  # as above
    files_changed: list[str]
    error: NotRequired[dict[str, str]]  # type, message and guidance of a run that failed, or was refused; as above
    notice: NotRequired[str]


class SessionInfo(TypedDict):
    session_id: str
    language: str
    runtime: str
    own: bool
    runs: int
    state: str
    protection: str
    workspace: str
    idle_seconds: float | None


class SessionList(TypedDict):
    sessions: list[SessionInfo]


class WorkspaceInfo(TypedDict):
    session_id: str
    workspace: str
    bytes: int
    files: int
    largest: list[str]


class FileInfo(TypedDict):
    name: str
    kind: str
    bytes: int
    modified: str


class FileList(TypedDict):
    notebook: str
    path: str
    files: list[FileInfo]
    more: int


class FilePart(TypedDict):
    notebook: str
    path: str
    uri: str
    kind: str
    mime: str
    bytes: int
    start: int
    end: int
    text: NotRequired[str]


class FileWritten(TypedDict):
    notebook: str
    path: str
    uri: str
    bytes: int


class Shared(TypedDict):
    notebook: str
    called: str
    shared_with: dict[str, str]


class Done(TypedDict):
    notebook: str
    message: str


def schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a result, shortened: no titles, `X or null` as one type."""
    found: dict[str, Any] = short(TypeAdapter(kind).json_schema())
    return found


def short(node: Any) -> Any:
    """An equivalent schema with fewer characters."""
    if isinstance(node, list):
        return [short(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "anyOf" in node and (merged := _merged([short(each) for each in node["anyOf"]])):
        return {**merged, **short({key: value for key, value in node.items() if key != "anyOf"})}
    return {
        key: {name: short(each) for name, each in value.items()} if key == "properties" else short(value)
        for key, value in node.items()
        if key != "title" and (key, value) != ("default", None)  # null is the default of what may be null
    }


def _merged(ways: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Several types as one schema, if they differ and at most one has further keywords, which concern only it."""
    types = [each.get("type") for each in ways]
    more = [{key: value for key, value in each.items() if key != "type"} for each in ways]
    said = [each for each in more if each]
    if not all(isinstance(each, str) for each in types) or len(set(types)) < len(types) or len(said) > 1:
        return None
    if said and not said[0].keys() <= {"additionalProperties", "items"}:
        return None
    return {"type": types, **(said[0] if said else {})}
