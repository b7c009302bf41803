"""Group-relative advantages from the crate `rlox-rl-ops`, for both conditions alike.

Why not TRL's own: it divides by the sample standard deviation plus 1e-4, the crate by the
population one and gives zeros below 1e-8. For groups of eight that is a factor of about 1.07.
Either is fine to train with; what matters is that both conditions use the same, and the crate is
what rlox offers.

A masked sample (reward NaN, its verification failed) is left out of its group's mean and deviation
and gets advantage 0: it neither moves the baseline nor the policy.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Sequence
from pathlib import Path

from rlox_trainer.args import REPOSITORY

LIBRARY_VARIABLE = "RLOX_RL_OPS_LIB"
LIBRARY_NAME = "librlox_rl_ops_ffi.so"
BUILD_COMMAND = "cargo build --release -p rlox-rl-ops-ffi"

# The codes that the library documents.
REFUSALS = {
    -1: "a null or misaligned pointer",
    -2: "a group size of zero",
    -3: "a number of rewards that is not a multiple of the group size",
    -4: "more rewards than memory can hold",
    -5: "a reward that is not finite",
    -6: "an internal error of rlox-rl-ops",
}


class AdvantageError(Exception):
    """Advantages could not be computed; the message says why and what to do."""


def library_path() -> Path:
    """Where the binding lies: RLOX_RL_OPS_LIB, or the repository's release build."""
    named = os.environ.get(LIBRARY_VARIABLE)
    path = Path(named) if named else REPOSITORY / "target" / "release" / LIBRARY_NAME
    if not path.is_file():
        raise AdvantageError(
            f"{path}: no such file. Build it with `{BUILD_COMMAND}` in the repository, "
            f"or name another copy in {LIBRARY_VARIABLE}"
        )
    return path


class GroupAdvantages:
    """The loaded library."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or library_path()
        try:
            self._function = ctypes.CDLL(str(self._path)).rlox_group_advantages
        except (OSError, AttributeError) as error:
            raise AdvantageError(
                f"{self._path} is not the binding ({error}); rebuild it with `{BUILD_COMMAND}`"
            ) from error
        double_pointer = ctypes.POINTER(ctypes.c_double)
        self._function.argtypes = [double_pointer, ctypes.c_size_t, ctypes.c_size_t, double_pointer]
        self._function.restype = ctypes.c_int32

    def compute(self, rewards: Sequence[float], group_size: int) -> list[float]:
        """Advantages of consecutive groups; NaN marks a masked sample."""
        if group_size < 1 or len(rewards) % group_size:
            # The library checks this too, but masked samples are taken out before it is called.
            raise AdvantageError(f"{len(rewards)} rewards do not make groups of {group_size}")
        if not any(math.isnan(reward) for reward in rewards):
            return self._call(rewards, group_size)
        advantages: list[float] = []
        for start in range(0, len(rewards), group_size):
            group = rewards[start : start + group_size]
            scored = [reward for reward in group if not math.isnan(reward)]
            values = iter(self._call(scored, len(scored)) if scored else ())
            advantages += [0.0 if math.isnan(reward) else next(values) for reward in group]
        return advantages

    def _call(self, rewards: Sequence[float], group_size: int) -> list[float]:
        count = len(rewards)
        array = ctypes.c_double * count
        out = array()
        code = self._function(array(*rewards), count, group_size, out)
        if code != 0:
            reason = REFUSALS.get(code, f"unknown code {code}")
            raise AdvantageError(f"{self._path} refused {count} rewards: {reason}")
        return list(out)
