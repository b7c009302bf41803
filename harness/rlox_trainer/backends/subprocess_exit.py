"""Second baseline: a child interpreter per program, judged by its exit code.

Many trainers do this and call it a sandbox. A crash no longer reaches the trainer, but the program
runs with the trainer's rights, its own children survive the time limit, and `exit(0)` before the
first test earns the full reward. The trial counts such forged rewards.

Run it with hostile snippets only inside a container.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rlox_trainer.backends import Submission


class SubprocessBackend:
    """`python -I file` per program, one after the other."""

    def __init__(self, timeout_secs: float) -> None:
        self._timeout_secs = timeout_secs

    def check(self) -> None:
        """Nothing has to be there."""

    def rewards(self, submissions: Sequence[Submission]) -> list[float | None]:
        with tempfile.TemporaryDirectory(prefix="rlox-subprocess-") as directory:
            file = Path(directory) / "snippet.py"
            return [self._reward(file, submission) for submission in submissions]

    def _reward(self, file: Path, submission: Submission) -> float | None:
        program = "\n".join([submission.code, *submission.tests, ""])
        try:
            file.write_text(program, encoding="utf-8", errors="surrogatepass")
            # Output is discarded: a pipe held open by a grandchild would outlast the time limit.
            done = subprocess.run(
                [sys.executable, "-I", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=self._timeout_secs,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 0.0
        except OSError as error:
            # No file or no process to be had: that is the trainer's trouble, not the program's.
            print(f"subprocess backend: could not run a snippet: {error}", file=sys.stderr)
            return None
        return 1.0 if done.returncode == 0 else 0.0
