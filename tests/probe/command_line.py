"""The command line, called in this process."""

from __future__ import annotations

import pytest

from probe.cli import main


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit code, standard output, and standard error with its lines joined."""
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, " ".join(err.split())
