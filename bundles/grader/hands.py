"""Processes that grade plain jobs one after the other.

A fork costs more than grading a plain job: most of the pages that it touches have to be copied first. A hand is a
fork that stays. It has given up what every fork gives up, takes jobs one at a time, takes back what the statements
left, and leaves at the first sign that a program did anything but answer.
"""

import os
import socket

# The report of a job is sent; then, that the process is ready for the next.
REPORTED, READY = b"r", b"."
# So many jobs, and the next hand begins with fresh pages.
MOST_JOBS = 1000


class Hand:
    """One such process, as its parent sees it."""

    def __init__(self, pid, sock):
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.socket = sock
        self.idle_since = 0.0

    def give(self, message, descriptors):
        """Hands a job over; false where the process is gone."""
        try:
            socket.send_fds(self.socket, [message], descriptors)
        except OSError:
            return False
        return True

    def said(self):
        """What it has said since it was last listened to; empty at its end, None where there is nothing."""
        try:
            return self.socket.recv(16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def dismiss(self):
        """There is nothing more to do: it ends by itself."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self):
        self.socket.close()
        os.close(self.pidfd)


def serve(sock, work):
    """In such a process: works until there is nothing more to do or something is out of the ordinary.

    `work` is given a function to call when the report is sent, and says whether this process may stay.
    """
    for left in reversed(range(MOST_JOBS)):
        message, descriptors, _, _ = socket.recv_fds(sock, 256, 3)
        if not message:
            return
        stays = work(message, descriptors, lambda: sock.sendall(REPORTED))
        if not (stays and left):
            return
        sock.sendall(READY)
