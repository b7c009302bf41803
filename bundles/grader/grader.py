"""The grader: runs test statements against a program that lives in another container.

Trusted code in a container of its own. It waits on descriptor 3 for jobs, each a channel to a snippet's
container, a descriptor for the report and the job itself, and forks once per job: nothing of one job is left for
the next. In the fork, the test statements run with stand-ins in place of the program's names. No code, class or
method of the program ever runs here; what it sends is decoded into builtins or stays an opaque number.

A report says which statements ran to their end, and is authenticated with the job's single-use key, which only
this process and the service know.
"""

import _sha256
import contextlib
import gc
import hmac
import json
import os
import resource
import select
import signal
import socket
import sys
import time

sys.path.insert(0, "/opt/rlox")
import guards
import overtime
import privacy
import rehearsal
import session
import statements
import surroundings

JOBS = 3
# Later failures of one job are counted without their text: a report has a bounded size.
MESSAGES = 1000
MAX_JOB = 64 << 20
# Address space of one fork: what a program sends must not take the other forks' memory.
FORK_BYTES = 1 << 30
# Room to decode and compare the deepest value that can cross.
RECURSION = 8000
# Before the report: it tells the service which process writes it.
GREETING = b"\n"


def grade(job, channel):
    """The report of one job."""
    tests = job["tests"]
    around = surroundings.Surroundings("\n".join(tests))
    if around.files:
        privacy.private_tmp()
    privacy.drop()
    guards.install()
    talk = session.Session(channel)
    loaded = talk.wait_ready()
    if loaded is not None:
        results = [(False, statements.printable(loaded))] * len(tests)
        return report(talk, False, False, results)
    if around.needed:
        around.start()
        talk.surroundings = around
    results = statements.run(talk, tests, job["early_stop"])
    talk.surroundings = None
    return report(talk, True, talk.alive(), results)


def report(talk, loaded, complete, results):
    tampering = [[kind, statements.printable(detail)] for kind, detail in talk.tampering]
    return {
        "loaded": loaded,
        "complete": complete,
        "ended": talk.gone,
        "results": results,
        "tampering": tampering,
    }


def send_report(report_fd, key, content):
    failures = 0
    for index, (passed, message) in enumerate(content["results"]):
        failures += not passed
        if message is not None and failures > MESSAGES:
            content["results"][index] = (passed, None)
    if content["ended"] is not None:
        content["ended"] = statements.printable(content["ended"])
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=True)
    # The interpreter's own SHA-256: OpenSSL's takes each fork longer to set up than all the rest of the report.
    mac = hmac.new(key, text.encode(), _sha256.sha256).hexdigest()
    with open(report_fd, "wb") as stream:
        stream.write(json.dumps({"report": text, "mac": mac}).encode())


def work(channel_fd, report_fd, job_fd, key, cpu):
    os.write(report_fd, GREETING)
    overtime.limit_cpu(cpu / 1000)
    resource.setrlimit(resource.RLIMIT_AS, (FORK_BYTES, FORK_BYTES))
    sys.setrecursionlimit(RECURSION)
    with open(job_fd, "rb") as stream:
        job = json.loads(stream.read(MAX_JOB))
    channel = socket.socket(fileno=channel_fd)
    channel.setblocking(True)
    send_report(report_fd, key, grade(job, channel))
    # This process's parent has the channel too: the program shall not wait for it.
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)


class Jobs:
    """Accepts jobs, forks for each, ends those that outlive their deadline."""

    def __init__(self):
        self.socket = socket.socket(fileno=JOBS)
        self.poll = select.poll()
        self.poll.register(self.socket.fileno(), select.POLLIN)
        self.running = {}

    def serve(self):
        while True:
            for descriptor, _ in self.poll.poll(self.timeout()):
                if descriptor == self.socket.fileno():
                    if not self.accept():
                        return
                else:
                    self.reap(descriptor)
            for fork in self.running.values():
                fork.look()

    def timeout(self):
        if not self.running:
            return None
        nearest = min(fork.next for fork in self.running.values())
        return max(10, int((nearest - time.monotonic()) * 1000) + 1)

    def accept(self):
        message, descriptors, _, _ = socket.recv_fds(self.socket, 256, 3)
        if not message:
            return False
        cpu, wall, key = message.decode().split()
        key = bytes.fromhex(key)
        channel_fd, report_fd, job_fd = descriptors
        try:
            pid = os.fork()
        except OSError as error:
            # This job gets no report, which is a failure of ours and no verdict; the others go on.
            print("grader: cannot fork: %s" % error, file=sys.stderr, flush=True)
            for descriptor in descriptors:
                os.close(descriptor)
            return True
        if pid == 0:
            try:
                self.socket.close()
                # Channels, reports and keys of other verifications are none of this fork's business.
                for fork in self.running.values():
                    for descriptor in fork.descriptors():
                        os.close(descriptor)
                self.running.clear()
                work(channel_fd, report_fd, job_fd, key, int(cpu))
            except BaseException:
                os._exit(1)
            os._exit(0)
        os.close(job_fd)
        pidfd = os.pidfd_open(pid)
        times = (int(cpu) / 1000, int(wall) / 1000)
        self.running[pidfd] = overtime.Fork(pid, times, report_fd, channel_fd, key)
        self.poll.register(pidfd, select.POLLIN)
        return True

    def reap(self, pidfd):
        fork = self.running.pop(pidfd)
        self.poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(fork.pid, 0)
        os.close(fork.channel_fd)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGTERM)
        if status == 0 or (killed and not fork.overdue):
            # It has reported, or something outside of it ended it: then there is no verdict on the program.
            os.close(fork.report_fd)
            return
        # What the program sent was too much for the fork. That is the program's doing and no failure of ours:
        # otherwise a program could turn its failures into samples that are left out.
        ended = "protocol: too much to compare within the grader's limits"
        tampering = [["exhausted_grader", ended]]
        report = {"loaded": True, "complete": False, "ended": ended, "results": [], "tampering": tampering}
        try:
            send_report(fork.report_fd, fork.key, report)
        except OSError as error:
            print("grader: cannot report: %s" % error, file=sys.stderr, flush=True)


def main():
    # Loaded once, before the forks.
    import array  # noqa: F401
    import decimal  # noqa: F401
    import fractions  # noqa: F401
    import math  # noqa: F401
    import pathlib  # noqa: F401
    import symtable  # noqa: F401
    import uuid  # noqa: F401

    rehearsal.rehearse(report, send_report)
    gc.collect()
    gc.freeze()
    # A fork that collects writes to pages that it shares with this process.
    gc.set_threshold(50_000, 50, 50)
    Jobs().serve()


if __name__ == "__main__":
    main()
