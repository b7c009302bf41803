"""The grader: runs test statements against a program that lives in another container.

Trusted code in a container of its own. It waits on descriptor 3 for jobs, each a channel to a snippet's
container, a descriptor for the report and the job itself, and forks once per job: nothing of one job is left for
the next. In the fork, the test statements run with stand-ins in place of the program's names. No code, class or
method of the program ever runs here; what it sends is decoded into builtins or stays an opaque number.

A report says which statements ran to their end, and is authenticated with the job's single-use key, which only
this process and the service know.
"""

import builtins
import gc
import hashlib
import hmac
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, "/opt/rlox")
import stand_in

JOBS = 3
MESSAGE_LIMIT = 300
# Later failures of one job are counted without their text: a report has a bounded size.
MESSAGES = 1000
MAX_JOB = 64 << 20
# Address space of one fork: what a program sends must not take the other forks' memory.
FORK_BYTES = 1 << 30


def free_names(statements):
    """Names that the statements read without binding them: static, so that the program cannot influence it."""
    import symtable

    free = set()
    bound = set()
    for statement in statements:
        try:
            tables = [symtable.symtable(statement, "<test>", "exec")]
        except (SyntaxError, ValueError):
            # Not Python; it fails when its turn comes.
            continue
        while tables:
            table = tables.pop()
            tables.extend(table.get_children())
            top = table.get_type() == "module"
            for symbol in table.get_symbols():
                if symbol.is_referenced() and (top or symbol.is_global()):
                    free.add(symbol.get_name())
                if top and (symbol.is_assigned() or symbol.is_imported()):
                    bound.add(symbol.get_name())
    return free - bound


# Builtins whose names programming tasks give to the function to write. No test compares with these.
TASK_NAMES = frozenset(
    "bin divmod filter format hex input map max min oct pow range reversed round slice sorted sum zip".split()
)


class Namespace(dict):
    """Globals of the test statements: what they define, else the program's names, else builtins.

    A name with which tests compare is never the program's, or it could answer `all(...)` or `isclose(...)` itself.
    One exception: where the statements read no name that could be the program's but a single one of these, that
    name is what is under test.
    """

    def __init__(self, session, statements):
        super().__init__(__name__="__test__", __builtins__=builtins)
        self._session = session
        names = {name for name in free_names(statements) if not name.startswith("__")}
        known = set(dir(builtins)) | stand_in.TRUSTED_MODULES | set(stand_in.TRUSTED)
        candidates = names & TASK_NAMES
        self._under_test = candidates if names <= known and len(candidates) == 1 else set()

    def __missing__(self, name):
        if name not in self._under_test:
            if name in builtins.__dict__:
                raise KeyError(name)
            value = stand_in.trusted(name)
            if value is not None:
                self[name] = value
                return value
        found, value = self._session.lookup(name)
        if not found:
            raise KeyError(name)
        self[name] = value
        return value


class Swallowed:
    """Failures that a test statement would not raise: of a unittest runner, of a thread."""

    def __init__(self):
        self.first = None

    def note(self, kind, error):
        if self.first is None:
            self.first = "%s: %s" % (kind, describe(error))

    def watch(self):
        threading.excepthook = lambda args: self.note("in a thread", args.exc_value)
        result = unittest.result.TestResult
        for name in ("addFailure", "addError"):
            setattr(result, name, self._noting(getattr(result, name)))
        result.addSubTest = self._noting(result.addSubTest)

    def _noting(self, original):
        def noting(this, test, *rest):
            error = rest[-1] if rest else None
            if error is not None:
                self.note("in a unittest", error[1])
            return original(this, test, *rest)

        return noting


def run_statements(session, statements):
    """Runs each statement; a result is (passed, message)."""
    namespace = Namespace(session, statements)
    swallowed = Swallowed()
    swallowed.watch()
    results = []
    for number, statement in enumerate(statements):
        if session.gone:
            results.append((False, "the program had ended: " + session.gone))
            continue
        try:
            exec(compile(statement, "<test %d>" % number, "exec", dont_inherit=True), namespace)
            results.append((True, None))
        except BaseException as error:
            results.append((False, describe(error)))
        if swallowed.first is not None and results[-1][0]:
            results[-1] = (False, swallowed.first)
        swallowed.first = None
        # A statement that swallows everything must not turn the program's end into a pass.
        if session.gone and results[-1][0]:
            results[-1] = (False, "the program ended: " + session.gone)
    if session.questions == 0:
        return [(False, message or "the tests never used the program") for _, message in results]
    return results


def describe(error):
    try:
        text = "%s: %s" % (type(error).__name__, error) if str(error) else type(error).__name__
    except BaseException:
        text = type(error).__name__
    return printable(text)


def printable(text):
    """Bounded, and valid Unicode: half a surrogate pair is no JSON for everybody."""
    return text[:MESSAGE_LIMIT].encode("utf-8", "backslashreplace").decode("utf-8")


def grade(job, channel):
    """The report of one job."""
    session = stand_in.Session(channel)
    loaded = session.wait_ready()
    if loaded is not None:
        results = [(False, printable(loaded))] * len(job["tests"])
        return {"loaded": False, "complete": False, "ended": session.gone, "results": results}
    results = run_statements(session, job["tests"])
    complete = session.alive()
    return {"loaded": True, "complete": complete, "ended": session.gone, "results": results}


def send_report(report_fd, key, report):
    failures = 0
    for index, (passed, message) in enumerate(report["results"]):
        failures += not passed
        if message is not None and failures > MESSAGES:
            report["results"][index] = (passed, None)
    if report["ended"] is not None:
        report["ended"] = printable(report["ended"])
    text = json.dumps(report, separators=(",", ":"), ensure_ascii=True)
    mac = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    with open(report_fd, "wb") as stream:
        stream.write(json.dumps({"report": text, "mac": mac}).encode())


def work(channel_fd, report_fd, job_fd, key):
    resource.setrlimit(resource.RLIMIT_AS, (FORK_BYTES, FORK_BYTES))
    with open(job_fd, "rb") as stream:
        job = json.loads(stream.read(MAX_JOB))
    channel = socket.socket(fileno=channel_fd)
    channel.setblocking(True)
    send_report(report_fd, key, grade(job, channel))


class Fork:
    """One verification that runs."""

    def __init__(self, pid, deadline, report_fd, key):
        self.pid = pid
        self.deadline = deadline
        self.report_fd = report_fd
        self.key = key
        self.overdue = False


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
            now = time.monotonic()
            for fork in self.running.values():
                if now >= fork.deadline:
                    fork.overdue = True
                    os.kill(fork.pid, signal.SIGKILL)

    def timeout(self):
        if not self.running:
            return None
        nearest = min(fork.deadline for fork in self.running.values())
        return max(10, int((nearest - time.monotonic()) * 1000) + 1)

    def accept(self):
        message, descriptors, _, _ = socket.recv_fds(self.socket, 256, 3)
        if not message:
            return False
        limit, key = message.decode().split()
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
                # Reports and keys of other verifications are none of this fork's business.
                for fork in self.running.values():
                    os.close(fork.report_fd)
                self.running.clear()
                work(channel_fd, report_fd, job_fd, key)
            except BaseException:
                os._exit(1)
            os._exit(0)
        os.close(channel_fd)
        os.close(job_fd)
        pidfd = os.pidfd_open(pid)
        self.running[pidfd] = Fork(pid, time.monotonic() + int(limit) / 1000, report_fd, key)
        self.poll.register(pidfd, select.POLLIN)
        return True

    def reap(self, pidfd):
        fork = self.running.pop(pidfd)
        self.poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(fork.pid, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGTERM)
        if status == 0 or (killed and not fork.overdue):
            # It has reported, or something outside of it ended it: then there is no verdict on the program.
            os.close(fork.report_fd)
            return
        # What the program sent was too much for the fork. That is the program's doing and no failure of ours:
        # otherwise a program could turn its failures into samples that are left out.
        ended = "protocol: too much to compare within the grader's limits"
        report = {"loaded": True, "complete": False, "ended": ended, "results": []}
        try:
            send_report(fork.report_fd, fork.key, report)
        except OSError as error:
            print("grader: cannot report: %s" % error, file=sys.stderr, flush=True)


def main():
    import symtable  # noqa: F401  loaded once, before the forks

    gc.collect()
    gc.freeze()
    Jobs().serve()


if __name__ == "__main__":
    main()
