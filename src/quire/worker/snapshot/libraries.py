"""Arrays, frames and clients of libraries, if cells have loaded the library."""

from __future__ import annotations

import gc
import os
import pickle
import sys
from typing import Any

from quire.worker.snapshot import tombstones
from quire.worker.snapshot.file_paths import path_of
from quire.worker.snapshot.loading import RESTORED_MEMORY
from quire.worker.snapshot.reducers import (
    Context,
    NotSerializable,
    rebuilds,
    reduce_itself,
    reduces_named,
    refuse_with,
)

_PickleBuffer = pickle.PickleBuffer
_SMALL = 16 * 1024  # smaller arrays own their memory after loading


def _numpy() -> Any:
    return sys.modules.get("numpy") or __import__("numpy")


@reduces_named("numpy.ndarray", "numpy.memmap", "numpy.matrix", "numpy.recarray", "numpy.rec.recarray", derived=True)
@reduces_named("patsy.design_info.DesignMatrix")
def reduce_array(context: Context, array: Any) -> Any:
    """Memory is stored with the array that owns it; other arrays become views again."""
    np = _numpy()
    if array.dtype.kind == "T" or (array.dtype.hasobject and array.dtype.kind != "O") or array.dtype.itemsize == 0:
        return reduce_itself(context, array)
    root = _root(array, np)
    over = _memory_of(root)
    if over is not None:
        return _reduce_over(array, over, np)
    if _is_map(root, np):
        if root is array:
            return _reduce_map(context, array, np)
    elif root is array or not _is_packed(root):
        return _reduce_owner(context, array if _is_packed(array) else array.copy(order="K"), type(array), array)
    return (make_array_view, (root, *_layout(array, root)), _attributes(array), None, None, fill_array)


def _root(array: Any, np: Any) -> Any:
    while True:
        base = array.base
        if type(base).__name__ == "DummyArray":  # inserted by as_strided
            base = base.base
        if not isinstance(base, np.ndarray):
            return array
        array = base


def _memory_of(root: Any) -> Any:
    """The object that owns the memory of the array, such as a bytearray."""
    base = root.base
    shown = base.obj if type(base) is memoryview else base
    if type(shown).__module__ not in ("array", "builtins") or type(shown) in (bytes, type(None)):
        return None
    if type(shown).__name__ not in ("array", "bytearray"):
        return None
    return None if (id(shown), memoryview(shown).nbytes) in RESTORED_MEMORY else shown


def _is_map(array: Any, np: Any) -> bool:
    return isinstance(array, np.memmap) and getattr(array, "filename", None) is not None


def _is_packed(array: Any) -> bool:
    return bool(array.flags.c_contiguous or array.flags.f_contiguous)


def _attributes(array: Any) -> Any:
    return None if isinstance(array, _numpy().memmap) else getattr(array, "__dict__", None) or None


def _layout(array: Any, root: Any) -> tuple[Any, ...]:
    start = _address(array) - _address(root)
    return (array.dtype, array.shape, array.strides, start, array.flags.writeable, type(array))


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _reduce_owner(context: Context, array: Any, kind: type, owner: Any) -> Any:
    order = "C" if array.flags.c_contiguous else "F"
    if array.dtype.kind == "O":
        return (make_objects, (array.shape, order, kind), (array.ravel(order="K").tolist(), _attributes(owner)), None,
                None, fill_objects)  # fmt: skip
    np = _numpy()
    flat = (array if order == "C" else array.T).view(np.ndarray).reshape(-1).view(np.uint8)
    context.owners[id(flat)] = owner
    arguments = (_PickleBuffer(flat), array.dtype, array.shape, order, owner.flags.writeable, kind)
    return (make_array, arguments, _attributes(owner), None, None, fill_array)


@rebuilds
def make_array(memory: Any, dtype: Any, shape: Any, order: str, writeable: bool, kind: Any) -> Any:
    np = _numpy()
    array = np.ndarray(shape, dtype, buffer=memory, order=order)
    if array.nbytes < _SMALL:
        array = array.copy(order="K")
    if kind is not np.ndarray:
        array = array.view(kind)
    if not writeable:
        array.flags.writeable = False
    return array


@rebuilds
def fill_array(array: Any, attributes: dict[str, Any] | None) -> None:
    if attributes and not tombstones.is_tombstone(array):
        array.__dict__.update(attributes)


@rebuilds
def make_array_view(root: Any, dtype: Any, shape: Any, strides: Any, start: int, writeable: bool, kind: Any) -> Any:
    if tombstones.is_tombstone(root):
        return root
    np = _numpy()
    plain = root.view(np.ndarray)
    if dtype.kind == "O":
        flat = plain.reshape(-1, order="A")
        array = np.lib.stride_tricks.as_strided(flat[start // 8 :], shape, strides)
    else:
        flat = (plain if plain.flags.c_contiguous else plain.T).reshape(-1).view(np.uint8)
        array = np.ndarray(shape, dtype, buffer=flat, offset=start, strides=strides)
    if kind is not np.ndarray:
        array = array.view(kind)
    if isinstance(array, np.memmap) and isinstance(root, np.memmap):
        array.__dict__.update(root.__dict__)  # attributes of the mapped file
    if not writeable:
        array.flags.writeable = False
    return array


@rebuilds
def make_objects(shape: Any, order: str, kind: Any) -> Any:
    np = _numpy()
    array = np.empty(shape, object, order=order)
    return array if kind is np.ndarray else array.view(kind)


@rebuilds
def fill_objects(array: Any, state: tuple[list[Any], Any]) -> None:
    items, attributes = state
    flat = array.reshape(-1, order="A")
    for at, item in enumerate(items):
        flat[at] = item
    fill_array(array, attributes)


def _reduce_over(array: Any, over: Any, np: Any) -> Any:
    start = _address(array) - _address(np.frombuffer(over, np.uint8))
    return (make_array_over, (over, array.dtype, array.shape, array.strides, start, array.flags.writeable, type(array)))


@rebuilds
def make_array_over(over: Any, dtype: Any, shape: Any, strides: Any, start: int, writeable: bool, kind: Any) -> Any:
    np = _numpy()
    array = np.ndarray(shape, dtype, buffer=memoryview(over), offset=start, strides=strides)
    if kind is not np.ndarray:
        array = array.view(kind)
    if not writeable:
        array.flags.writeable = False
    return array


def _reduce_map(context: Context, array: Any, np: Any) -> Any:
    path = os.path.abspath(os.fsdecode(array.filename))
    order = "C" if array.flags.c_contiguous else "F"
    content = None
    if array.mode == "c":
        flat = array.view(np.ndarray).reshape(-1, order="A").view(np.uint8)
        context.owners[id(flat)] = array
        content = _PickleBuffer(flat)
    mode = "r+" if array.mode == "w+" else array.mode
    return (open_map, (path, array.dtype, mode, array.offset, array.shape, order, content))


@rebuilds
def open_map(path: str, dtype: Any, mode: str, offset: int, shape: Any, order: str, content: Any) -> Any:
    np = _numpy()
    try:
        if os.path.getsize(path) < offset + dtype.itemsize * int(np.prod(shape)):
            return tombstones.lost_on_load("a mapped array", f"{path} is shorter than it was")
        array = np.memmap(path, dtype, mode, offset, shape, order)
    except OSError as error:
        return tombstones.lost_on_load("a mapped array", f"{path} cannot be opened: {error.strerror}")
    if content is not None:
        array.reshape(-1, order="A").view(np.uint8)[:] = np.frombuffer(content, np.uint8)
    return array


@reduces_named("numpy.ma.MaskedArray", "numpy.ma.core.MaskedArray")
def reduce_masked(context: Context, array: Any) -> Any:
    """As a view of its data, which another array may own, with its mask."""
    np = _numpy()
    if isinstance(_root(array, np), np.ma.MaskedArray) or array.dtype.hasobject:
        return reduce_itself(context, array)
    return (make_masked, (type(array), array.view(np.ndarray)), dict(array.__dict__), None, None, fill_array)


@rebuilds
def make_masked(kind: Any, data: Any) -> Any:
    return data if tombstones.is_tombstone(data) else data.view(kind)


@reduces_named("numpy.lib.npyio.NpzFile", "numpy.lib._npyio_impl.NpzFile")
def reduce_archive(context: Context, archive: Any) -> Any:
    name = getattr(archive.fid, "name", None)
    if not isinstance(name, (str, os.PathLike)):
        raise NotSerializable("an archive of arrays", "it is closed, or no file with a path")
    path = path_of(name, archive.fid.fileno())
    return (open_archive, (path, os.path.getsize(path), bool(archive.allow_pickle)))


@rebuilds
def open_archive(path: str, size: int, allow_pickle: bool) -> Any:
    try:
        if os.path.getsize(path) != size:
            return tombstones.lost_on_load("an archive of arrays", f"{path} was changed since")
        return _numpy().load(path, allow_pickle=allow_pickle)
    except OSError as error:
        return tombstones.lost_on_load("an archive of arrays", f"{path} cannot be opened: {error.strerror}")


@reduces_named("numpy.ufunc")
def reduce_ufunc(context: Context, ufunc: Any) -> Any:
    """Ufuncs from `frompyfunc` refer to their function."""
    made_of = [referent for referent in gc.get_referents(ufunc) if callable(referent)]
    if len(made_of) != 1 or not ufunc.__name__.endswith(" (vectorized)"):
        return reduce_itself(context, ufunc)
    return (make_ufunc, (made_of[0], ufunc.nin, ufunc.nout, ufunc.identity))


@rebuilds
def make_ufunc(function: Any, takes: int, gives: int, identity: Any) -> Any:
    words = {} if identity is None else {"identity": identity}
    return function if tombstones.is_tombstone(function) else _numpy().frompyfunc(function, takes, gives, **words)


@reduces_named("matplotlib.cbook.CallbackRegistry")
def reduce_callbacks(context: Context, registry: Any) -> Any:
    """With callbacks of artists and the notebook, which matplotlib leaves out."""
    reduced = reduce_itself(context, registry)
    if type(reduced[2]) is not dict or type(reduced[2].get("callbacks")) is not dict:
        return reduced
    callbacks: dict[str, dict[int, Any]] = {}
    for signal, registered in registry.callbacks.items():
        known = reduced[2]["callbacks"].get(signal, {})
        alive = {number: proxy() for number, proxy in registered.items()}
        callbacks[signal] = {key: function for key, function in alive.items() if key in known or _is_wanted(function)}
    return (*reduced[:2], {**reduced[2], "callbacks": callbacks}, *reduced[3:])


def _is_wanted(function: Any) -> bool:
    """False for callbacks of windows, canvases and pyplot, which register again."""
    owner = getattr(function, "__self__", None)
    home = str(getattr(function if owner is None else type(owner), "__module__", ""))
    if owner is None:
        return home == "__main__"
    return not home.startswith(("matplotlib.backend", "matplotlib.pyplot", "matplotlib._pylab"))


# pandas: `refs` connects frames that share memory with copy-on-write


@reduces_named("pandas._libs.internals.Block", "pandas._libs.internals.NumpyBlock", derived=True)
def reduce_block(context: Context, block: Any) -> Any:
    _, arguments, *_ = block.__reduce__()
    return (make_block, (*arguments, block.refs))


@rebuilds
def make_block(values: Any, placement: Any, ndim: int, refs: Any) -> Any:
    from_pandas = sys.modules.get("pandas.core.internals.blocks") or __import__(
        "pandas.core.internals.blocks", fromlist=["new_block"]
    )
    placed = sys.modules["pandas._libs.internals"].BlockPlacement(placement)
    for part in (values, refs):
        if tombstones.is_tombstone(part):
            raise ValueError(tombstones.sentence(part))
    return from_pandas.new_block(values, placed, ndim=ndim, refs=refs)


@reduces_named("pandas.core.internals.managers.SingleBlockManager")
def reduce_single(context: Context, manager: Any) -> Any:
    return (make_single, (type(manager), manager.blocks[0], manager.axes[0]))


@rebuilds
def make_single(kind: Any, block: Any, axis: Any) -> Any:
    return kind(block, axis)


@reduces_named("pandas._libs.internals.BlockValuesRefs")
def reduce_refs(context: Context, refs: Any) -> Any:
    return (make_refs, ())


@rebuilds
def make_refs() -> Any:
    __import__("pandas")
    return sys.modules["pandas._libs.internals"].BlockValuesRefs()


_INDEXES = ("Index", "DatetimeIndex", "TimedeltaIndex", "PeriodIndex", "IntervalIndex", "CategoricalIndex")


@reduces_named(*(f"pandas.{name}" for name in _INDEXES))
def reduce_index(context: Context, index: Any) -> Any:
    reduced = reduce_itself(context, index)
    refs = getattr(index, "_references", None)
    if refs is None or not refs.has_reference() or reduced[2] is not None:
        return reduced
    return (*reduced[:2], refs, None, None, fill_index)


@rebuilds
def fill_index(index: Any, refs: Any) -> None:
    index._references = refs
    refs.add_index_reference(index)


# HTTP clients, created again


@reduces_named("httpx.Client", "httpx.AsyncClient", "httpx2.Client", "httpx2.AsyncClient")
def reduce_client(context: Context, client: Any) -> Any:
    if client._mounts or client._transport.__class__.__name__ not in ("HTTPTransport", "AsyncHTTPTransport"):
        raise NotSerializable("an HTTP client", "its transport cannot be saved")
    words = {name: getattr(client, name) for name in ("base_url", "headers", "params", "timeout", "follow_redirects")}
    words |= {"cookies": dict(client.cookies), "max_redirects": client.max_redirects, "trust_env": client.trust_env}
    words |= {"headers": list(client.headers.multi_items()), "base_url": str(client.base_url)}
    words |= {"params": list(client.params.multi_items()), "event_hooks": client.event_hooks, "auth": client.auth}
    words["timeout"] = client.timeout.as_dict()
    return (make_client, (type(client), words, client.is_closed))


@rebuilds
def make_client(kind: Any, words: dict[str, Any], closed: bool) -> Any:
    library = sys.modules[kind.__module__]
    words["timeout"] = library.Timeout(**words["timeout"])
    client = kind(**words)
    if closed and not kind.__name__.startswith("Async"):
        client.close()
    return client


reduces_named("numpy.nditer")(refuse_with("a numpy iterator", "its position cannot be saved"))


@reduces_named("patsy.origin.Origin")
def reduce_origin(context: Context, origin: Any) -> Any:
    return (type(origin), (origin.code, origin.start, origin.end))
