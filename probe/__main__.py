"""Where `jointprobe` begins. It imports next to nothing, so that Ctrl-C is quiet from the first moment on."""

from __future__ import annotations

import signal


def main() -> None:
    """Load the command line and run it; until it is loaded, Ctrl-C ends the process without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from probe.cli import main as run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
