#!/usr/bin/env python3
"""Run the whole sweep: 2 conditions, 3 seeds and 4 adversarial fractions make 24 trials.

Each trial runs in a container of its own and leaves a directory under sweep_out/ with its metrics,
its summary and its log. A trial that dies is recorded as such and the next one starts; a sweep that
was interrupted can be resumed with `rlox-controller sweep resume`.

Every argument is passed on to the controller.
"""

from __future__ import annotations

import sys

from controller_cli import become_controller

if __name__ == "__main__":
    become_controller("run", sys.argv[1:], __doc__)
