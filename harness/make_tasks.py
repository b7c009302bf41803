"""Write corpus/tasks_v1.jsonl: the small coding tasks that the trials train on.

Why a generator and not a hand-kept file: every line carries test statements, and those are only
worth something if the reference passes them and each near-miss fails them. Building the file checks
both, with trusted programs from this module only. The result depends on nothing but the seed text
below, so a rebuild gives the same bytes and `--check` can prove it.

A task is one family with one constant. Prompt and solution are short enough for a policy of half a
million parameters: that is what makes a trial of thirty steps affordable on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
DEFAULT_OUTPUT = REPOSITORY / "corpus" / "tasks_v1.jsonl"
SEED_TEXT = "rlox tasks v1"
TESTS_PER_TASK = 4
CONSTANTS = range(2, 10)


def two_numbers(rng: random.Random, _k: int) -> tuple[Any, ...]:
    return rng.randint(2, 20), rng.randint(2, 20)


def maybe_multiple(rng: random.Random, k: int) -> tuple[Any, ...]:
    """Half of the draws are multiples of k, so that divisibility has both answers."""
    return (k * rng.randint(2, 9) if rng.random() < 0.5 else rng.randint(10, 60),)


def word(rng: random.Random, _k: int) -> tuple[Any, ...]:
    """Longer than any constant, and a palindrome now and then."""
    letters = "".join(rng.choice("abcde") for _ in range(rng.randint(11, 14)))
    return (letters + letters[::-1] if rng.random() < 0.4 else letters,)


def numbers(rng: random.Random, _k: int) -> tuple[Any, ...]:
    return ([rng.randint(0, 20) for _ in range(rng.randint(11, 13))],)


@dataclass(frozen=True)
class Family:
    """One kind of task; `{k}` in a text stands for the constant."""

    name: str
    parameters: str
    description: str
    reference: str
    wrong: tuple[str, ...]
    arguments: Callable[[random.Random, int], tuple[Any, ...]]

    @property
    def constants(self) -> tuple[int, ...]:
        return tuple(CONSTANTS) if "{k}" in self.description else (0,)

    def prompt(self, k: int) -> str:
        return f"# f({self.parameters}): {self.description.format(k=k)}\n"

    def program(self, expression: str, k: int) -> str:
        return f"def f({self.parameters}):\n    return {expression.format(k=k)}\n"


FAMILIES = (
    Family("add", "a, b", "add a and b", "a + b", ("a - b", "a * b"), two_numbers),
    Family("mul_k", "a", "multiply a by {k}", "a * {k}", ("a + {k}", "a // {k}"), maybe_multiple),
    Family("max", "a, b", "larger of a and b", "max(a, b)", ("min(a, b)", "a"), two_numbers),
    Family(
        "div_k",
        "a",
        "true if a is divisible by {k}",
        "a % {k} == 0",
        ("a // {k} == 0", "a % {k} == 1"),
        maybe_multiple,
    ),
    Family("reverse", "s", "reverse the string s", "s[::-1]", ("s[::1]", "s[-1]"), word),
    Family("upper", "s", "s in upper case", "s.upper()", ("s.lower()", "s.title()"), word),
    Family("take_k", "s", "first {k} characters of s", "s[:{k}]", ("s[{k}:]", "s[{k}]"), word),
    Family(
        "palindrome",
        "s",
        "true if s is a palindrome",
        "s == s[::-1]",
        ("s[0] == s[-1]", "s != s[::-1]"),
        word,
    ),
    Family("sum", "xs", "sum of xs", "sum(xs)", ("len(xs)", "max(xs)"), numbers),
    Family(
        "sort_desc",
        "xs",
        "sort xs descending",
        "sorted(xs)[::-1]",
        ("sorted(xs)", "xs[::-1]"),
        numbers,
    ),
    Family(
        "evens",
        "xs",
        "even elements of xs",
        "[x for x in xs if x % 2 == 0]",
        ("[x for x in xs if x % 2 == 1]", "[x // 2 for x in xs]"),
        numbers,
    ),
    Family(
        "add_k_each",
        "xs",
        "add {k} to every element of xs",
        "[x + {k} for x in xs]",
        ("[x * {k} for x in xs]", "xs + [{k}]"),
        numbers,
    ),
)


def passes(program: str, tests: list[str]) -> bool:
    """Whether a program of this module passes; only ever called with trusted text."""
    namespace: dict[str, Any] = {}
    try:
        exec(program, namespace)
        for test in tests:
            exec(test, namespace)
    except Exception:
        return False
    return True


def build_task(family: Family, k: int) -> dict[str, Any]:
    """One line of the file; draws arguments until the tests tell right from wrong."""
    reference = family.program(family.reference, k)
    wrong = [family.program(expression, k) for expression in family.wrong]
    namespace: dict[str, Any] = {}
    exec(reference, namespace)
    rng = random.Random(f"{SEED_TEXT}/{family.name}/{k}")
    for _attempt in range(1000):
        calls = [family.arguments(rng, k) for _ in range(TESTS_PER_TASK)]
        answers = [namespace["f"](*call) for call in calls]
        tests = [
            f"assert f({', '.join(map(repr, call))}) == {answer!r}"
            for call, answer in zip(calls, answers, strict=True)
        ]
        # Four equal answers could be met by returning a constant; a repeated call tests nothing.
        varied = len({repr(answer) for answer in answers}) > 1 and len(set(tests)) == len(tests)
        if varied and passes(reference, tests) and not any(passes(p, tests) for p in wrong):
            return {
                "id": f"{family.name}_{k}" if k else family.name,
                "family": family.name,
                "prompt": family.prompt(k),
                "reference": reference,
                "wrong": wrong,
                "tests": tests,
            }
    raise SystemExit(f"make_tasks: no tests separate {family.name} (k={k}) from its near-misses")


def build_tasks() -> Iterator[dict[str, Any]]:
    for family in FAMILIES:
        for k in family.constants:
            yield build_task(family, k)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Build the coding tasks and check that their tests tell right from wrong.",
        epilog="The output is the same on every machine. Change FAMILIES here, never the file.",
    )
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="default: %(default)s")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the file is not what I'd write"
    )
    arguments = parser.parse_args()
    text = "".join(json.dumps(task) + "\n" for task in build_tasks())
    output: Path = arguments.output
    if arguments.check:
        if not output.exists() or output.read_text() != text:
            print(f"make_tasks: {output} is out of date; run make_tasks.py", file=sys.stderr)
            return 1
        print(f"{output} is up to date")
        return 0
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=output.parent, delete=False) as temporary:
        temporary.write(text)
        temporary.flush()
        os.fsync(temporary.fileno())
    os.chmod(temporary.name, 0o644)
    os.replace(temporary.name, output)
    print(f"{len(text.splitlines())} tasks in {len(FAMILIES)} families written to {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
