"""What a fork of the grader gives up before it reads anything, and the /tmp that it gets for itself.

The grader's container may mount, in its own user namespace, for one purpose: tests that make files get an empty
/tmp that no other verification sees. Every fork drops that privilege before it meets a byte of the program.
"""

import ctypes
import os

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
PR_CAPBSET_READ = 23
CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def _check(result, action):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (action, os.strerror(number)))


def private_tmp():
    """An empty /tmp of this process's own."""
    _check(_libc.unshare(CLONE_NEWNS), "unshare")
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    _check(_libc.mount(b"tmpfs", b"/tmp", b"tmpfs", flags, b"size=16m,nr_inodes=4096,mode=1777"), "mount /tmp")
    os.chdir("/tmp")


def drop():
    """Gives up every capability, and proves it."""
    header = _Header(CAPABILITY_VERSION_3, 0)
    _check(_libc.prctl(47, 4, 0, 0, 0), "clearing ambient capabilities")
    _check(_libc.capset(ctypes.byref(header), (_Data * 2)()), "capset")
    held = (_Data * 2)()
    _check(_libc.capget(ctypes.byref(header), held), "capget")
    if any(each.effective or each.permitted or each.inheritable for each in held):
        raise OSError("capabilities are still there")
