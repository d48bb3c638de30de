"""The programs that run in WebAssembly: built or obtained by name, never committed."""

from pathlib import Path

CARRIED = Path(__file__).parent / "data"
"""Where the package itself carries them, if it was built so."""
