"""One GRPO trial: TRL's trainer, a way to run generated code, and a record of what happened.

Importing the package must stay free of torch and TRL, so that `--help`, the tests of single modules
and the thin callers start at once; only `trainer` imports them.
"""
