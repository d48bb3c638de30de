"""Started by path under any Python 3.11+, with nothing of Quire's own environment on its path.

Only `quire.wire` and `quire.worker` are reachable from here: a stand-in package points at their
folder while they load and is gone before user code runs, so that a cell's `import quire` means
whatever the kernel's own environment has.
"""

import pathlib
import sys
import types


def load() -> None:
    house = types.ModuleType("quire")
    house.__path__ = [str(pathlib.Path(__file__).resolve().parent.parent)]
    sys.modules["quire"] = house
    from quire.worker.processes import zygote

    del sys.modules["quire"]
    zygote.main(sys.argv[1:]) if sys.argv[1] != "venv-exec" else zygote.main_in_venv(sys.argv[2])


if __name__ == "__main__":
    load()
