#!/usr/bin/env python3
"""One trial of the benchmark: `trl_grpo_run.py --help` explains it.

The script is only the door; the work is in the package rlox_trainer beside it. Run it with the
interpreter of the environment that setup_env.sh makes.
"""

from __future__ import annotations

import sys

from rlox_trainer.args import parse
from rlox_trainer.trial import run

if __name__ == "__main__":
    sys.exit(run(parse(sys.argv[1:])))
