"""What running statements leaves in this process, and how it is taken back."""

import gc
import sys

import mirror


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
        # Whether nothing is left that refers to the program.
        self.gone = True
        return self

    def __exit__(self, *error):
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
            if mirrors:
                gc.collect()
            self.gone = not mirrors
            if self.gone:
                type.__delattr__(mirror.Mirror, "_rlox_session")
        return False
