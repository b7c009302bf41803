"""A trainer's process as it is often written: it starts a Python for each program with `subprocess.run`.

Each line of standard input asks for a batch of calls, and each answer is one line. Standard input is the leash:
where it ends, no further call begins.
"""

import json
import resource
import select
import subprocess
import sys
import threading
import time

LIMIT = 60


def main():
    for line in iter(sys.stdin.buffer.readline, b""):
        print(json.dumps(batch(**json.loads(line))), flush=True)


def batch(argv, expect, clients, count, secs, cleanup):
    before, begun = cpu(), time.perf_counter()
    calls = Calls(argv, expect, count, begun + secs)
    threads = [threading.Thread(target=calls.work) for _ in range(clients - 1)]
    for thread in threads:
        thread.start()
    calls.work()
    for thread in threads:
        thread.join()
    return {
        "walls": calls.walls,
        "elapsed": time.perf_counter() - begun,
        "cpu": cpu() - before,
        "failed": calls.failed,
        "why": calls.why,
    }


def cpu():
    """Seconds of this process, and of all that it waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def abandoned():
    """Whether the other end of standard input is gone."""
    leash = select.poll()
    leash.register(0, select.POLLHUP)
    return bool(leash.poll(0))


class Calls:
    def __init__(self, argv, expect, count, end):
        self.argv, self.expect, self.left, self.end = argv, expect, count, end
        self.counted = count > 0
        self.walls, self.failed, self.why = [], 0, ""
        self.lock = threading.Lock()

    def another(self):
        with self.lock:
            if self.counted:
                self.left -= 1
                return self.left >= 0 and not abandoned()
        return time.perf_counter() < self.end and not abandoned()

    def work(self):
        while self.another():
            begun = time.perf_counter()
            try:
                done = subprocess.run(self.argv, capture_output=True, text=True, timeout=LIMIT)
                wrong = done.returncode != 0 or done.stdout != self.expect
                why = f"code {done.returncode}: {done.stderr[-300:]}" if wrong else ""
            except (OSError, subprocess.TimeoutExpired) as error:
                why = str(error)
            wall = time.perf_counter() - begun
            with self.lock:
                if why:
                    self.failed += 1
                    self.why = self.why or why
                else:
                    self.walls.append(wall)


if __name__ == "__main__":
    main()
