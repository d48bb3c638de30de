"""Entry point of the worker program. It is started by path with any Python 3.11+.

The worker and the leaf packages that it shares with the server can be imported while they load, through a stand-in
package that points at their folder. It is removed before user code runs. So `import quire` in a cell finds what the
kernel's own environment has.
"""

import pathlib
import sys
import types


def load() -> None:
    package = types.ModuleType("quire")
    package.__path__ = [str(pathlib.Path(__file__).resolve().parent.parent)]
    sys.modules["quire"] = package
    from quire.worker.processes import zygote

    del sys.modules["quire"]
    zygote.main(sys.argv[1:]) if sys.argv[1] != "venv-exec" else zygote.main_in_venv(sys.argv[2])


if __name__ == "__main__":
    load()
