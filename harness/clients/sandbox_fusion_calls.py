"""Calls the service with SandboxFusion's own client, unchanged, as installed.

Reads `{"url", "calls": [{"how", "request"}]}`, where `how` is `run`, `async` or `submit`.
"""

import asyncio
import json
import sys
from typing import Any

import sandbox_fusion as client

WORDS = client.SummaryMapping(
    Success="success", Failed="failed", RunFailed="run failed", RunTimeout="run timeout"
)


def call(url: str, how: str, request: dict[str, Any]) -> dict[str, Any]:
    try:
        if how == "submit":
            answer = client.submit(client.SubmitRequest(**request), endpoint=url, max_attempts=1)
            return {"answer": json.loads(answer.json())}
        wanted = client.RunCodeRequest(**request)
        if how == "async":
            running = client.run_code_async(wanted, endpoint=url, max_attempts=1)
            answer = asyncio.run(running)
        else:
            answer = client.run_code(wanted, endpoint=url, max_attempts=1)
        summary = client.summary_run_code_result(answer, WORDS)
        return {"answer": json.loads(answer.json()), "summary": summary}
    except Exception as error:
        return {"error": str(error)}


def main() -> None:
    request = json.load(sys.stdin)
    answers = [call(request["url"], each["how"], each["request"]) for each in request["calls"]]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
