#!/usr/bin/env python3
"""Turn the trials of a sweep into p3_summary.json and p3_summary.md.

Usage: aggregate_sweep.py [--sweep-dir DIR]

The JSON holds the survival table (p3_headline) and the comparison of final rewards
(quality_parity_guardrail); the Markdown says the same for people.

Every argument is passed on to the controller.
"""

from __future__ import annotations

import sys

from controller_cli import become_controller

if __name__ == "__main__":
    become_controller("aggregate", sys.argv[1:], __doc__)
