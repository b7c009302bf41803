"""Find the program rlox-controller and become it; shared by the tutorial's thin scripts.

The sweep itself (planning, running, aggregating, plotting) lives in rlox-controller, once. The
scripts beside this module exist so that the tutorial's commands work as they are written there.
They need nothing but the standard library, so any Python 3 will do, the trainer's environment or
not.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

REPOSITORY = Path(__file__).resolve().parent.parent
VARIABLE = "RLOX_CONTROLLER"
BUILD_COMMAND = "cargo build --release"


class ControllerNotFound(Exception):
    """rlox-controller is not there; the message says how to get it."""


def find_controller() -> Path:
    """RLOX_CONTROLLER if set, else the repository's release build, else PATH."""
    named = os.environ.get(VARIABLE)
    if named:
        if os.access(named, os.X_OK) and Path(named).is_file():
            return Path(named)
        raise ControllerNotFound(f"{VARIABLE}={named} is not a program that can be run")
    built = REPOSITORY / "target" / "release" / "rlox-controller"
    if built.is_file():
        return built
    installed = shutil.which("rlox-controller")
    if installed:
        return Path(installed)
    raise ControllerNotFound(
        f"rlox-controller is not built: {built} does not exist. Run `{BUILD_COMMAND}` in "
        f"{REPOSITORY}, or name the program in {VARIABLE}"
    )


def become_controller(
    command: str, arguments: Sequence[str], help_text: str | None = None
) -> NoReturn:
    """Replace this process by `rlox-controller sweep COMMAND ARGUMENTS…`.

    With -h or --help the script's own text comes first and the controller's, which knows every
    flag, after it.
    """
    asked_for_help = any(argument in ("-h", "--help") for argument in arguments)
    if asked_for_help and help_text:
        print(help_text.strip() + f"\n\nIt runs `rlox-controller sweep {command}`:\n", flush=True)
    try:
        controller = find_controller()
    except ControllerNotFound as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(0 if asked_for_help else 1)
    os.execv(controller, [str(controller), "sweep", command, *arguments])
