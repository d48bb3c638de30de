"""The `quire` command, and `python -m quire`."""

from __future__ import annotations

import signal


def main() -> None:
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while modules load ends it without a traceback
    from quire import cli

    signal.signal(signal.SIGINT, handler)
    cli.main()


if __name__ == "__main__":
    main()
