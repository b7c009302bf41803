"""What running statements leaves in this process, and how it is taken back."""

import gc
import resource
import sys

import mirror

# Modules that every run makes for itself.
MADE_ANEW = {"solution"}
# KiB that one job may add to the highest use of memory.
MOST_GROWTH = 32 << 10


class Ended:
    """In place of a session that is over, for mirrors that go after it."""

    @property
    def released(self):
        return []


class Traces:
    """Takes back what the statements run in its context have left: modules, import hooks, mirrors, the session."""

    def __enter__(self):
        self._modules = dict(sys.modules)
        self._hooks = list(sys.meta_path)
        self._memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # Whether nothing is left that refers to the program.
        self.gone = True
        return self

    def is_small(self):
        """Whether this process has not grown by much: memory that was in use once stays with it."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < self._memory + MOST_GROWTH

    def __exit__(self, *error):
        # A module of the library may have hooks of its own, for the end of a process or for a fork.
        more = sys.modules.keys() - self._modules.keys() - MADE_ANEW
        if sys.modules != self._modules:
            sys.modules.clear()
            sys.modules.update(self._modules)
        sys.meta_path[:] = self._hooks
        session = mirror.Mirror.__dict__.get("_rlox_session")
        if session is not None:
            mirrors = session.mirrors()
            # One process has one session at a time, and this one keeps exceptions with all that they refer to.
            type.__setattr__(mirror.Mirror, "_rlox_session", Ended())
            del session
            # A session refers to itself; and what a program sent, to whatever it liked.
            gc.collect()
            self.gone = not mirrors and not more
            if self.gone:
                type.__delattr__(mirror.Mirror, "_rlox_session")
        return False
