"""How long one verification's fork may live.

Its CPU time is limited by the kernel. Its wall clock depends on the program: as long as that lives, its own
limits end it, and the fork finds the channel closed. Only then the fork's own time begins to count, less what it
waits for a CPU, so that a loaded machine never takes a report that was on its way. A last bound holds whatever
happens.

Nothing is looked at before the program's time can be over: most forks are gone by then.
"""

import math
import os
import resource
import select
import signal
import time

# After the program's end: to find that out, and to say so.
SLACK = 1.0
# Waiting for a CPU stretches that up to this multiple.
FACTOR = 4
# Between two looks whether the program is still there.
PAUSE = 0.25


def limit_cpu(seconds):
    """Of the calling process, from now on, in the kernel's unit of whole seconds."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime + seconds)
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def waited(pid):
    """Seconds that a process was ready and had no CPU; 0 where the kernel does not count them."""
    try:
        with open("/proc/%d/schedstat" % pid) as stream:
            return int(stream.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def is_closed(channel_fd):
    """Whether the other end of a channel is gone."""
    poll = select.poll()
    poll.register(channel_fd, 0)
    return bool(poll.poll(0))


class Fork:
    """One verification that runs."""

    def __init__(self, pid, times, report_fd, channel_fd, key):
        self.pid = pid
        self.report_fd = report_fd
        # Ours only to see the program's end.
        self.channel_fd = channel_fd
        self.key = key
        self.overdue = False
        first, last = times
        now = time.monotonic()
        # When to look at it.
        self.next = now + first
        self._last = now + last
        self._alone = None

    def descriptors(self):
        return (self.report_fd, self.channel_fd)

    def look(self):
        """Ends the process if its time is over."""
        now = time.monotonic()
        if now < self.next:
            return
        if self._alone is None and is_closed(self.channel_fd):
            self._alone = (now, waited(self.pid))
        if now >= min(self._last, self._end()):
            self.overdue = True
            os.kill(self.pid, signal.SIGKILL)
        self.next = now + PAUSE

    def _end(self):
        """When the time that it has alone is over, as far as one can say now."""
        if self._alone is None:
            return math.inf
        begun, before = self._alone
        lost = max(0.0, waited(self.pid) - before)
        return begun + SLACK + min(lost, SLACK * (FACTOR - 1))
