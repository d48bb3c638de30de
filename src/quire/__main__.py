"""The `quire` command, and `python -m quire`."""

from __future__ import annotations

import signal


def main() -> None:
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # Ctrl-C while modules load ends the process without a traceback; a command that has to clean up handles it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from quire import cli

    cli.main()


if __name__ == "__main__":
    main()
