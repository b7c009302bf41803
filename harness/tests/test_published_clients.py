"""Published clients of other servers against the real service: one changed URL, nothing else.

They run in an environment of their own, installed by uv from `clients/uv.lock`.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_service import ROOT, need, need_containers, serve

HARNESS = ROOT / "harness"
SUM = "a, b = map(int, input().split())\nprint(a + b)"
# Ends by its wall clock, whatever else the machine does.
SLEEP = "import time\ntime.sleep(60)"
BOMB = "held = []\nwhile True: held.append(b'x' * (8 << 20))"


@pytest.fixture(scope="module")
def clients() -> Path:
    """The interpreter of the clients' environment."""
    need_containers()
    uv = shutil.which("uv") or str(HARNESS / ".tools/uv/bin/uv")
    need(Path(uv).exists(), "uv (harness/setup_env.sh installs it)")
    environment = ROOT / "target/clients-venv"
    command = [uv, "sync", "--quiet", "--frozen", "--project", str(HARNESS / "clients")]
    python = HARNESS / ".venv/bin/python"
    command += ["--python", str(python.resolve())]
    variables = {"UV_PROJECT_ENVIRONMENT": str(environment), "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    need(done.returncode == 0, f"packages from PyPI ({done.stderr.strip()})")
    return environment / "bin/python"


@pytest.fixture(scope="module")
def url(clients: Path) -> Iterator[str]:
    with serve("--workers", "2") as url:
        yield url


def ask(clients: Path, script: str, url: str, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    request = json.dumps({"url": url, "calls": calls})
    command = [str(clients), str(HARNESS / "clients" / script)]
    done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def verl(
    clients: Path, url: str, *calls: tuple[str, dict[str, Any]], **more: object
) -> list[dict[str, Any]]:
    asked = [{"solution": solution, "cases": cases, **more} for solution, cases in calls]
    return ask(clients, "verl_scores.py", f"{url}/run_code", asked)


def cases(*pairs: tuple[str, str | None], **more: object) -> dict[str, Any]:
    return {"inputs": [each for each, _ in pairs], "outputs": [each for _, each in pairs], **more}


def test_verl_scores_programs_by_their_output(clients: Path, url: str):
    numbers = "\n".join(str(n) for n in range(70_000))
    right, half, function, method, long, crash = verl(
        clients,
        url,
        (SUM, cases(("1 2\n", "3\n"), ("5 5\n", "10"))),
        (SUM, cases(("1 2\n", "3\n"), ("5 5\n", "11"))),
        ("def add(a, b):\n    return a + b", cases(("1\n2", "3"), fn_name="add")),
        (
            "class Solution:\n    def twice(self, xs):\n        return [2 * x for x in xs]",
            cases(("[1, 2]", "[2, 4]"), fn_name="twice"),
        ),
        ("for n in range(70_000):\n    print(n)", cases(("", numbers))),
        ("raise ValueError", cases(("", "1"))),
    )
    assert (right["results"], right["score"]) == ([True, True], 1.0)
    assert (half["results"], half["score"]) == ([True, False], 0.5)
    assert function["results"] == method["results"] == [True]
    assert len(numbers) > 400_000 and long["results"] == [True]
    assert (crash["results"], crash["statuses"]) == ([-2], ["runtime_error"])


def test_verl_tells_limits_from_wrong_answers(clients: Path, url: str):
    # Its score has a limit of ten seconds that cannot be changed, so it is not asked for.
    (slow,) = verl(clients, url, (SLEEP, cases(("", "1"))), timeout=2, scored=False)
    assert (slow["results"], slow["statuses"]) == ([-3], ["timeout"])
    (bomb,) = verl(clients, url, (BOMB, cases(("", "1"))), memory_mb=128)
    assert (bomb["results"], bomb["statuses"], bomb["score"]) == ([-2], ["runtime_error"], 0.0)


@pytest.mark.parametrize(
    ("early", "honest"),
    [
        ("import sys\ndef f(x):\n    return 2\nsys.exit(0)", "def f(x):\n    return x"),
        ("import os\ndef f(x):\n    return 2\nos._exit(0)", "import os\ndef f(x):\n    return x"),
        ("def f(x):\n    raise SystemExit", "def f(x):\n    return x\nimport sys"),
        (
            "import atexit, os\natexit.register(os._exit, 0)\ndef f(x):\n    return 2",
            "import atexit\natexit.register(print, 'bye')\ndef f(x):\n    return x",
        ),
    ],
)
def test_verl_gives_nothing_for_leaving_before_its_assertions(
    clients: Path, url: str, early: str, honest: str
):
    # With assertions verl expects no output: that the program succeeded is enough for it.
    checks = cases(("", None), ("", None), assert_case=["assert f(1) == 1", "assert f(2) == 2"])
    left, stayed = verl(clients, url, (early, checks), (honest, checks))
    assert (left["results"], left["score"]) == ([-2, -2], 0.0)
    assert (stayed["results"], stayed["score"]) == ([True, True], 1.0)


def test_verl_loses_no_score_to_an_overloaded_service(clients: Path):
    sleeper = "import time\ntime.sleep(0.3)\nprint(input())"
    many = cases(*((str(n), str(n)) for n in range(6)))
    with serve("--workers", "1", "--queue", "1") as url:
        (answer,) = verl(clients, url, (sleeper, many))
    assert answer["results"] == [True] * 6


def test_verl_counts_a_limit_of_the_servers_own_as_no_result(clients: Path):
    with serve("--workers", "1", "--dialect-timeout-secs", "1") as url:
        slow, quick = verl(clients, url, (SLEEP, cases(("", "1"))), (SUM, cases(("1 2\n", "3"))))
        (raised,) = ask(
            clients,
            "sandbox_fusion_calls.py",
            url,
            [{"how": "run", "request": {"code": SLEEP, "language": "python"}}],
        )
    assert (slow["results"], slow["statuses"]) == ([-1], ["sandbox_error"])
    assert quick["results"] == [True]
    assert "--dialect-timeout-secs" in raised["error"]


def test_sandbox_fusions_own_client(clients: Path, url: str):
    def run(code: str, how: str = "run", **more: object) -> dict[str, Any]:
        return {"how": how, "request": {"code": code, "language": "python", **more}}

    encoded = base64.b64encode(b"\x00\xff").decode()
    good, other, files, failed, early, slow, cpp = ask(
        clients,
        "sandbox_fusion_calls.py",
        url,
        [
            run(SUM, stdin="1 2\n"),
            run(SUM, how="async", stdin="1 2\n"),
            run(
                "data = open('d/in', 'rb').read()\nopen('out', 'wb').write(data * 2)",
                files={"d/in": encoded},
                fetch_files=["out"],
            ),
            run("import sys\nsys.exit(3)"),
            run("import os\nos._exit(0)"),
            run(SLEEP, run_timeout=1),
            {"how": "run", "request": {"code": "int main() {}", "language": "cpp"}},
        ],
    )
    for each in (good, other):
        assert (each["summary"], each["answer"]["run_result"]["stdout"]) == ("success", "3\n")
    assert base64.b64decode(files["answer"]["files"]["out"]) == b"\x00\xff\x00\xff"
    assert (failed["summary"], failed["answer"]["run_result"]["return_code"]) == ("run failed", 3)
    assert early["summary"] == "run failed"
    assert slow["summary"] == "run timeout"
    assert "422" in cpp["error"] and "this server runs: python" in cpp["error"]


def test_sandbox_fusions_client_submits_cases(clients: Path, url: str):
    def submission(program: str) -> dict[str, Any]:
        tests = [{"input": {"stdin": "1 2\n"}, "output": {"stdout": "3\n"}}]
        config = {"language": "python", "provided_data": {"test": tests}}
        completion = f"```python\n{program}\n```"
        request = {"dataset": "mine", "id": 1, "completion": completion, "config": config}
        return {"how": "submit", "request": request}

    right, wrong = ask(
        clients, "sandbox_fusion_calls.py", url, [submission(SUM), submission("print(4)")]
    )
    assert (right["answer"]["accepted"], wrong["answer"]["accepted"]) == (True, False)
    assert wrong["answer"]["tests"][0]["exec_info"]["run_result"]["stdout"] == "4\n"


def test_open_r1s_calls(clients: Path, url: str):
    def files(program: str, **more: str) -> dict[str, Any]:
        named = [
            {"name": "main.py", "content": program},
            *({"name": name, "content": text} for name, text in more.items()),
        ]
        return {"files": named, "run_timeout": 5000}

    reads = "got = open('input').read() == open('correct_output').read()\nprint(int(got))"
    stalls = "import sys\nprint('Resource temporarily unavailable', file=sys.stderr)\nsys.exit(1)"
    good, bad, early, stall, slow, unknown = ask(
        clients,
        "open_r1_calls.py",
        f"{url}/api/v2",
        [
            {"language": "python", "data": files(reads, input="7", correct_output="7")},
            {"language": "python", "data": files(reads, input="7", correct_output="8")},
            {"language": "python", "data": files("import os\nprint(1, flush=True)\nos._exit(0)")},
            {"language": "python", "data": files(stalls)},
            {"language": "python", "data": {**files(SLEEP), "run_timeout": 1000}},
            {"language": "cms_ioi", "data": files("")},
        ],
    )
    assert good["passes"] and good["compiles"]
    for each in (bad, early, stall, slow):
        assert not each["passes"] and each["compiles"] and not each["tries_again"], each
    assert slow["answer"]["run"]["signal"] == "SIGKILL"
    assert unknown["status"] == 400 and "runtime is unknown" in unknown["answer"]["message"]
