#!/usr/bin/env python3
"""Show or run the benchmark.

Usage: run_benchmark.py --dry-run    print the 24 trial commands and run none of them
       run_benchmark.py              run them, as run_sweep_p3.py does

Every other argument is passed on to the controller.
"""

from __future__ import annotations

import sys

from controller_cli import become_controller

if __name__ == "__main__":
    dry = "--dry-run" in sys.argv[1:]
    rest = [argument for argument in sys.argv[1:] if argument != "--dry-run"]
    become_controller("plan" if dry else "run", rest, __doc__)
