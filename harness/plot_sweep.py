#!/usr/bin/env python3
"""Draw the figures of a sweep: survival, quality parity, step times and GPU utilisation.

Usage: plot_sweep.py [--sweep-dir DIR] [--out-dir DIR]

Writes p3_survival.png, quality_parity.png, step_time_stall.png and gpu_util.png.

Every argument is passed on to the controller.
"""

from __future__ import annotations

import sys

from controller_cli import become_controller

if __name__ == "__main__":
    become_controller("plot", sys.argv[1:], __doc__)
