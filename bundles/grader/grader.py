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
import select
import signal
import socket
import sys
import time

sys.path.insert(0, "/opt/rlox")
import codec  # noqa: E402
import stand_in  # noqa: E402

JOBS = 3
MESSAGE_LIMIT = 400
MAX_JOB = 64 << 20


def free_names(statements):
    """Names that the statements read without binding them: static, so that the program cannot influence it."""
    import symtable

    free = set()
    bound = set()
    for statement in statements:
        try:
            tables = [symtable.symtable(statement, "<test>", "exec")]
        except SyntaxError:
            continue
        while tables:
            table = tables.pop()
            tables.extend(table.get_children())
            top = table.get_type() == "module"
            for symbol in table.get_symbols():
                if symbol.is_global() and symbol.is_referenced() or top and symbol.is_referenced():
                    free.add(symbol.get_name())
                if top and (symbol.is_assigned() or symbol.is_imported()):
                    bound.add(symbol.get_name())
    return free - bound


class Namespace(dict):
    """Globals of the test statements: what they define, else the program's names, else builtins.

    A builtin name is never the program's, or a program could answer `all(...)` itself; unless the statements
    read no other name of the program at all, so that the builtin's name is what is under test.
    """

    def __init__(self, session, statements):
        super().__init__(__name__="__test__", __builtins__=builtins)
        self._session = session
        names = {name for name in free_names(statements) if not name.startswith("__")}
        self._under_test = set() if names - set(dir(builtins)) else names

    def __missing__(self, name):
        if name in builtins.__dict__ and name not in self._under_test:
            raise KeyError(name)
        found, value = self._session.lookup(name)
        if not found:
            raise KeyError(name)
        self[name] = value
        return value


def run_statements(session, statements):
    """Runs each statement; a result is (passed, message)."""
    namespace = Namespace(session, statements)
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
        # A statement that swallows everything must not turn the program's end into a pass.
        if session.gone and results[-1][0]:
            results[-1] = (False, "the program ended: " + session.gone)
    return results


def describe(error):
    try:
        text = "%s: %s" % (type(error).__name__, error) if str(error) else type(error).__name__
    except BaseException:
        text = type(error).__name__
    return text[:MESSAGE_LIMIT]


def grade(job, channel):
    """The report of one job."""
    session = stand_in.Session(channel)
    loaded = session.wait_ready()
    if loaded is not None:
        results = [(False, loaded[:MESSAGE_LIMIT])] * len(job["tests"])
        return {"loaded": False, "complete": False, "ended": session.gone, "results": results}
    results = run_statements(session, job["tests"])
    complete = session.alive()
    return {"loaded": True, "complete": complete, "ended": session.gone, "results": results}


def work(channel_fd, report_fd, job_fd):
    with open(job_fd, "rb") as stream:
        job = json.loads(stream.read(MAX_JOB))
    key = bytes.fromhex(job["key"])
    channel = socket.socket(fileno=channel_fd)
    channel.setblocking(True)
    report = json.dumps(grade(job, channel), separators=(",", ":"), ensure_ascii=True)
    mac = hmac.new(key, report.encode(), hashlib.sha256).hexdigest()
    with open(report_fd, "wb") as stream:
        stream.write(json.dumps({"report": report, "mac": mac}).encode())


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
            for pid, deadline in list(self.running.values()):
                if now >= deadline:
                    os.kill(pid, signal.SIGKILL)

    def timeout(self):
        if not self.running:
            return None
        nearest = min(deadline for _, deadline in self.running.values())
        return max(10, int((nearest - time.monotonic()) * 1000) + 1)

    def accept(self):
        message, descriptors, _, _ = socket.recv_fds(self.socket, 64, 3)
        if not message:
            return False
        deadline = time.monotonic() + int(message) / 1000
        pid = os.fork()
        if pid == 0:
            try:
                self.socket.close()
                work(*descriptors)
            except BaseException as error:
                print("grader: %s" % describe(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
        pidfd = os.pidfd_open(pid)
        self.running[pidfd] = (pid, deadline)
        self.poll.register(pidfd, select.POLLIN)
        return True

    def reap(self, pidfd):
        pid, _ = self.running.pop(pidfd)
        self.poll.unregister(pidfd)
        os.close(pidfd)
        os.waitpid(pid, 0)


def main():
    import symtable  # noqa: F401  loaded once, before the forks

    gc.collect()
    gc.freeze()
    Jobs().serve()


if __name__ == "__main__":
    main()
