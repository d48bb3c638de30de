"""`python -m quire.runtimes.wasm.assets`: obtain and build the programs into the package, before a wheel is made."""

from __future__ import annotations

from quire.runtimes.wasm.assets import CARRIED, python, quickjs

CARRIED.mkdir(exist_ok=True)
quickjs.program(CARRIED, print)
for old in CARRIED.glob("python-*.wasm"):
    if old.name != python.name():
        old.unlink()
print(python.build(CARRIED, print).name)
