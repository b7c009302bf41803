"""Sends what open-r1's Piston client sends, and reads the answers by its rules.

That client is published as source alone and not as a package, so this is a replay of its calls and
no use of it: the same bodies over the same HTTP library, with its time limit and its conditions for
trying again. Reads `{"url", "calls": [{"language", "data"}]}`; the URL is that of `/api/v2`.
"""

import asyncio
import json
import sys
from typing import Any

import aiohttp

OVERLOADED = "Resource temporarily unavailable"


async def send(session: aiohttp.ClientSession, url: str, call: dict[str, Any]) -> dict[str, Any]:
    body = {**call["data"], "language": call["language"], "version": "*"}
    headers = {"Content-Type": "application/json"}
    async with session.post(f"{url}/execute", json=body, headers=headers) as response:
        answer = await response.json(content_type=None)
        if response.status != 200:
            return {"tries_again": True, "status": response.status, "answer": answer}
        run = answer["run"]
        return {
            "tries_again": OVERLOADED in run.get("stderr", ""),
            "status": 200,
            "answer": answer,
            "compiles": answer["compile"]["code"] == 0,
            "passes": run["code"] == 0 and run["stdout"].strip() == "1",
        }


async def replay(request: dict[str, Any]) -> list[dict[str, Any]]:
    timeout = aiohttp.ClientTimeout(sock_read=30)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        async with session.get(f"{request['url']}/runtimes") as response:
            assert response.status == 200 and await response.json(content_type=None)
        return [await send(session, request["url"], call) for call in request["calls"]]


if __name__ == "__main__":
    json.dump(asyncio.run(replay(json.load(sys.stdin))), sys.stdout)
