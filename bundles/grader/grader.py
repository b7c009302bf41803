"""The grader: runs test statements against a program that lives in another container.

Trusted code in a container of its own. It waits on descriptor 3 for jobs, each a channel to a snippet's
container, a descriptor for the report and the job itself, and forks once per job, so that nothing of one job is
left for the next; jobs that leave nothing are graded by forks that stay. In the fork, the test statements run with
stand-ins in place of the program's names. No code, class or method of the program ever runs here; what it sends
is decoded into builtins or stays an opaque number.

A report says which statements ran to their end, and is authenticated with the job's single-use key, which only
this process and the service know.
"""

import _sha256
import _thread
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
import hands
import overtime
import plain
import privacy
import rehearsal
import session
import statements
import surroundings
import traces

JOBS = 3
# Later failures of one job are counted without their text: a report has a bounded size.
MESSAGES = 1000
MAX_JOB = 64 << 20
# Address space of one fork: what a program sends must not take the other forks' memory.
FORK_BYTES = 1 << 30
# Room to decode and compare the deepest value that can cross.
RECURSION = 8000
# Seconds after which a process that has nothing to do may go.
IDLE = 5
# CPU seconds to take back what a job left.
CLEANING = 5
# Before the report: it tells the service which process writes it.
GREETING = b"\n"


def grade(job, channel, plain_job=False):
    """The report of one job. For a plain one, this process has given up its privileges before."""
    tests = job["tests"]
    around = surroundings.Surroundings("" if plain_job else "\n".join(tests))
    if not plain_job:
        if around.files:
            privacy.private_tmp()
        confine()
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


def confine():
    """What a process does before it meets the first byte of a program."""
    privacy.drop()
    guards.install()
    resource.setrlimit(resource.RLIMIT_AS, (FORK_BYTES, FORK_BYTES))
    sys.setrecursionlimit(RECURSION)


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


def work(channel_fd, report_fd, job_fd, key, cpu, plain_job=False):
    """Grades one job and reports; returns what was reported."""
    os.write(report_fd, GREETING)
    overtime.limit_cpu(cpu / 1000)
    with open(job_fd, "rb") as stream:
        job = json.loads(stream.read(MAX_JOB))
    channel = socket.socket(fileno=channel_fd)
    channel.setblocking(True)
    content = grade(job, channel, plain_job)
    send_report(report_fd, key, content)
    # This process's parent has the channel too: the program shall not wait for it.
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)
    channel.close()
    return content


def work_plainly(message, descriptors, reported):
    """Grades one plain job in a process that stays; whether it may stay."""
    cpu, _, key = message.decode().split()
    channel_fd, report_fd, job_fd = descriptors
    with traces.Traces() as left:
        content = work(channel_fd, report_fd, job_fd, bytes.fromhex(key), int(cpu), plain_job=True)
        reported()
        # What follows is no time of the program.
        overtime.limit_cpu(CLEANING)
    answered = content["complete"] and content["ended"] is None and not content["tampering"]
    return answered and left.gone and left.is_small() and _thread._count() == 0


class Jobs:
    """Accepts jobs, forks for each or has a hand do it, ends what outlives its deadline."""

    def __init__(self):
        self.socket = socket.socket(fileno=JOBS)
        self.poll = select.poll()
        self.poll.register(self.socket.fileno(), select.POLLIN)
        # What is graded now, by the pidfd of the process that does it.
        self.running = {}
        # By their pidfds and by their sockets; and those that have nothing to do.
        self.hands = {}
        self.idle = []

    def serve(self):
        while True:
            for descriptor, _ in self.poll.poll(self.timeout()):
                if descriptor == self.socket.fileno():
                    if not self.accept():
                        return
                elif descriptor in self.hands and descriptor != self.hands[descriptor].pidfd:
                    self.listen(self.hands[descriptor])
                elif descriptor in self.running or descriptor in self.hands:
                    self.reap(descriptor)
                # Any other went with what was dealt with just before.
            for fork in self.running.values():
                fork.look()
            self.dismiss()

    def timeout(self):
        due = [fork.next for fork in self.running.values()]
        due += [hand.idle_since + IDLE for hand in self.idle[:1]]
        if not due:
            return None
        return max(10, int((min(due) - time.monotonic()) * 1000) + 1)

    def dismiss(self):
        """Lets hands go that have had nothing to do for a while; those that are idle longest come first."""
        while self.idle and time.monotonic() >= self.idle[0].idle_since + IDLE:
            self.idle.pop(0).dismiss()

    def accept(self):
        message, descriptors, _, _ = socket.recv_fds(self.socket, 256, 3)
        if not message:
            return False
        cpu, wall, key = message.decode().split()
        key = bytes.fromhex(key)
        channel_fd, report_fd, job_fd = descriptors
        try:
            if plain.is_plain(os.pread(job_fd, plain.MOST_BYTES + 1, 0)):
                pid, pidfd = self.by_hand(message, descriptors)
            else:
                pid = self.fork(lambda: work(channel_fd, report_fd, job_fd, key, int(cpu)))
                pidfd = os.pidfd_open(pid)
                self.poll.register(pidfd, select.POLLIN)
        except OSError as error:
            # This job gets no report, which is a failure of ours and no verdict; the others go on.
            print("grader: cannot fork: %s" % error, file=sys.stderr, flush=True)
            for descriptor in descriptors:
                os.close(descriptor)
            return True
        os.close(job_fd)
        times = (int(cpu) / 1000, int(wall) / 1000)
        self.running[pidfd] = overtime.Fork(pid, times, report_fd, channel_fd, key)
        return True

    def fork(self, perform):
        """A process that does this and ends; what else goes on here is none of its business."""
        pid = os.fork()
        if pid == 0:
            try:
                self.socket.close()
                for fork in self.running.values():
                    for descriptor in fork.descriptors():
                        os.close(descriptor)
                for hand in set(self.hands.values()):
                    hand.close()
                self.running.clear()
                self.hands.clear()
                self.idle.clear()
                perform()
            except BaseException:
                os._exit(1)
            os._exit(0)
        return pid

    def by_hand(self, message, descriptors):
        """Gives a job to a hand that is idle, or to a new one."""
        while self.idle:
            hand = self.idle.pop()
            if hand.give(message, descriptors):
                return hand.pid, hand.pidfd
        ours, theirs = socket.socketpair()

        def serve():
            ours.close()
            # It is handed copies of them. Whoever waits for the end of one would wait for this process.
            for descriptor in descriptors:
                os.close(descriptor)
            confine()
            hands.serve(theirs, work_plainly)

        hand = hands.Hand(self.fork(serve), ours)
        theirs.close()
        for descriptor in (hand.pidfd, ours.fileno()):
            self.hands[descriptor] = hand
            self.poll.register(descriptor, select.POLLIN)
        if not hand.give(message, descriptors):
            raise OSError("a new process is gone")
        return hand.pid, hand.pidfd

    def listen(self, hand):
        """A hand has something to say."""
        said = hand.said()
        if said is None:
            return
        if not said:
            # It has left; its pidfd says how.
            self.forget(hand)
        if hands.REPORTED in said:
            for descriptor in self.running.pop(hand.pidfd).descriptors():
                os.close(descriptor)
        if hands.READY in said:
            hand.idle_since = time.monotonic()
            self.idle.append(hand)

    def forget(self, hand):
        if self.hands.pop(hand.socket.fileno(), None) is not None:
            self.poll.unregister(hand.socket.fileno())
        if hand in self.idle:
            self.idle.remove(hand)

    def reap(self, pidfd):
        hand = self.hands.get(pidfd)
        fork = self.running.get(pidfd)
        ended, status = os.waitpid((hand or fork).pid, os.WNOHANG)
        if not ended:
            return
        self.poll.unregister(pidfd)
        if hand is not None:
            # What it said last is not lost.
            self.listen(hand)
            fork = self.running.get(pidfd)
            self.forget(hand)
            del self.hands[pidfd]
            hand.close()
        else:
            os.close(pidfd)
        if fork is not None:
            del self.running[pidfd]
            self.end(fork, status)

    def end(self, fork, status):
        """The process that graded a job has ended."""
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


def load():
    """Imports what any job may need, once, before the forks."""
    import array  # noqa: F401
    import decimal  # noqa: F401
    import fractions  # noqa: F401
    import math  # noqa: F401
    import pathlib  # noqa: F401
    import symtable  # noqa: F401
    import uuid  # noqa: F401


def main():
    load()
    rehearsal.rehearse(report, send_report)
    gc.collect()
    gc.freeze()
    # A fork that collects writes to pages that it shares with this process.
    gc.set_threshold(50_000, 50, 50)
    Jobs().serve()


if __name__ == "__main__":
    main()
