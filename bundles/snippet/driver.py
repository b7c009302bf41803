"""Inside the snippet's container: loads the program, and runs it or answers calls on it.

This is in the untrusted process: the program can read and change all of it. Nothing here decides anything. It
only has to be right for programs that do not attack it; for those that do, the grader and the launcher outside
are what counts.

`driver.pyc run`: the program is descriptor 3 (or standard input), and runs as a script.
`driver.pyc judged`: the same, and its own end is told on descriptor 4.
`driver.pyc script`: the same, with files, arguments and a stricter end, which descriptor 5 describes.
`driver.pyc serve`: the program is descriptor 3 and is loaded; then calls come on descriptor 4.
"""

import builtins
import os
import sys

NAME = "main.py"
ARGUMENTS = []
SOURCE, CHANNEL = 3, 4
# Where the driver's own modules are; programs do not find them by name.
OWN = "/opt/rlox"
# Packages of the bundle; the interpreter runs without `site`, which would find them.
SITE = "/opt/rlox/site"
ENDED = b"end\n"


def read_source(descriptor=SOURCE):
    try:
        stream = open(descriptor, "rb", closefd=True)
    except OSError:
        stream = sys.stdin.buffer
    with stream:
        return stream.read()


class Source:
    """Where tools that show source text find the program's: it exists as no file that they could open."""

    def __init__(self, text):
        self._text = text

    def get_source(self, name):
        return self._text.decode("utf-8", "replace")


def load(source, name):
    """Executes the program as a module of this name and returns its namespace."""
    module = type(sys)(name)
    module.__builtins__ = builtins
    module.__file__ = NAME
    module.__loader__ = Source(source)
    sys.modules[name] = module
    # The interpreter runs without `site`, which would define these.
    builtins.exit = builtins.quit = sys.exit
    sys.argv = [NAME, *ARGUMENTS]
    exec(compile(source, NAME, "exec"), module.__dict__)
    return module.__dict__


def keep_source(source):
    """Writes the program where it runs, for those that read their own file or start it again."""
    try:
        with open(NAME, "xb") as stream:
            stream.write(source)
    except OSError:
        pass


def remember_lines(source):
    import linecache

    text = source.decode("utf-8", "replace")
    linecache.cache[NAME] = (len(text), None, text.splitlines(True), NAME)


def report(error, source):
    """Prints the traceback as the interpreter would, without this module's frames."""
    import traceback

    remember_lines(source)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)
    sys.stderr.flush()


def run(source, end=None, too_early=None):
    """Runs the program as a script. `end` learns how it ended, where somebody wants to know; `too_early` says of a
    `SystemExit` at which line it left too early, or 0."""
    keep_source(source)
    try:
        load(source, "__main__")
    except SystemExit as error:
        line = too_early(error, source) if too_early is not None else 0
        if end is not None:
            end.word = b"exit %d\n" % line if line else ENDED
        raise
    except BaseException as error:
        report(error, source)
        sys.exit(1)
    if end is not None:
        end.word = ENDED


class End:
    """Tells on a descriptor that the program came to its own end: after all of its own exit handlers, and only if
    the driver has seen that end. A program that has exit handlers run early tells nothing."""

    def __init__(self, channel, before=None):
        import atexit

        self.word = None
        self._channel, self._before, self._process = channel, before, os.getpid()
        os.set_inheritable(channel, False)
        atexit.register(self._tell)

    def _tell(self):
        if os.getpid() != self._process:
            return
        if self._before is not None:
            try:
                self._before()
            except OSError:
                # The program closed what is not its own; what it was to hand back is missing.
                self._before = None
        if self.word is not None:
            os.write(self._channel, self.word)


def run_script(source):
    global NAME, ARGUMENTS
    sys.path.insert(0, OWN)
    import script

    # A module of the program may have its name.
    del sys.path[0], sys.modules["script"]
    plan = script.Plan()
    NAME, ARGUMENTS = plan.name, plan.arguments
    sys.path.insert(0, os.path.dirname(os.path.abspath(NAME)))
    run(source, End(CHANNEL, plan.hand_back), plan.left_early_at)


def serve(source):
    sys.path.insert(0, OWN)
    import server

    del sys.path[0]
    os.set_inheritable(CHANNEL, False)
    serving = server.Server(CHANNEL)
    try:
        # Not "__main__": a guarded main part is for the program as a script.
        namespace = load(source, "solution")
    except SystemExit as error:
        serving.send(("failed", "SystemExit", "SystemExit: %r" % (error.code,)))
        raise
    except BaseException as error:
        report(error, source)
        serving.send(("failed", type(error).__name__, "%s: %s" % (type(error).__name__, str(error)[:500])))
        sys.exit(1)
    serving.serve(namespace)
    sys.stdout.flush()
    sys.stderr.flush()
    # The answer is known outside; threads and exit handlers of the program have no more say.
    os._exit(0)


def main():
    mode = sys.argv[1] if len(sys.argv) > 1 else "run"
    if SITE not in sys.path:
        sys.path.append(SITE)
    source = read_source()
    if mode == "serve":
        serve(source)
    if mode == "script":
        run_script(source)
        return
    run(source, End(CHANNEL) if mode == "judged" else None)


if __name__ == "__main__":
    main()
