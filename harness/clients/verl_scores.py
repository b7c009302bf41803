"""Scores programs with verl's own code: `verl.utils.reward_score`, unchanged, as installed.

Only the packages `verl` and `verl.utils` are left empty: importing them whole asks for torch and
ray, which the client of SandboxFusion does not use. Reads
`{"url", "calls": [{"solution", "cases", "timeout", "memory_mb", "scored"}]}`.
"""

import importlib.util
import json
import sys
import threading
import types


def leave_empty(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.submodule_search_locations, f"{name} is not installed"
    package = types.ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules[name] = package


leave_empty("verl")
leave_empty("verl.utils")

from verl.utils.reward_score import default_compute_score  # noqa: E402
from verl.utils.reward_score.sandbox_fusion.utils import check_correctness  # noqa: E402


def main() -> None:
    request = json.load(sys.stdin)
    url, semaphore = request["url"], threading.Semaphore(64)
    answers = []
    for call in request["calls"]:
        memory_mb = call.get("memory_mb", 1024)
        results, metadata = check_correctness(
            url,
            dict(call["cases"]),
            call["solution"],
            timeout=call.get("timeout", 10),
            memory_limit_mb=memory_mb,
            concurrent_semaphore=semaphore,
        )
        score = None
        if call.get("scored", True):
            score = default_compute_score(
                "codecontests",
                f"```python\n{call['solution']}\n```",
                json.dumps(call["cases"]),
                sandbox_fusion_url=url,
                concurrent_semaphore=semaphore,
                memory_limit_mb=memory_mb,
            )
        statuses = [each["status"] for each in metadata]
        answers.append({"results": results, "statuses": statuses, "score": score})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
