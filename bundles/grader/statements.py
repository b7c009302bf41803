"""Runs test statements with the program's names resolved to mirrors."""

import _thread
import ast
import contextlib
import importlib.machinery
import re
import sys
import time
import types

import checks
import guards
import mirror
import names
import session as sessions

MESSAGE_LIMIT = 300
# The service says the same of runs that it leaves out.
NOT_RUN = "not run: early stop"
# What iterates over calls without a Python frame in between, where StopIteration of a call would end it early.
CONSUMERS = re.compile(
    r"\b(map|filter|iter|filterfalse|starmap|takewhile|dropwhile|accumulate|groupby|reduce|__next__)\b"
)

# Threads of the tests, each of which may wait in the program for another.
THREADS = re.compile(r"\bThread\b|ThreadPool|\bexecutor\b|to_thread|run_in_executor|\bTimer\b")
WAITS = re.compile(r"\bsleep\b")


class Namespace(dict):
    """Globals of the test statements: what they define, else what `names` decides, else builtins.

    What the statements bind stays here: a program that could see it would find the expected values there.
    """

    def __init__(self, session, statements, names):
        guard = guards.Guard(session, statements)
        super().__init__(__name__="__main__", __builtins__=guard.builtins())
        self.update({checks.HOLD: session.hold, checks.SETTLE: session.settle})
        self._session = session
        self._names = names

    def __missing__(self, name):
        value = self._names.of_library(name)
        if value is not None:
            self[name] = value
            return value
        special = name.startswith("__") and name.endswith("__")
        if not (name in self._names.free if special else self._names.of_program(name)):
            if name in names.FOREIGN_MODULES and name in self._session.names:
                raise ImportError("the tests have no module %r of their own" % name)
            raise KeyError(name)
        found, value = self._session.lookup(name)
        if not found:
            raise KeyError(name)
        # Functions and classes stay what they are; data may have changed when it is read again.
        if isinstance(value, (mirror.MirrorType, mirror.MirrorFunction, type, types.ModuleType)):
            self[name] = value
        return value


class TestModule(types.ModuleType):
    """`__main__` as test runners look for it: the statements' namespace."""

    def __init__(self, namespace):
        super().__init__("__main__")
        self.__dict__["_rlox_namespace"] = namespace

    def __getattr__(self, name):
        namespace = self.__dict__["_rlox_namespace"]
        if name in namespace:
            return namespace[name]
        raise AttributeError(name)

    def __setattr__(self, name, value):
        self.__dict__["_rlox_namespace"][name] = value

    def __dir__(self):
        return list(self.__dict__["_rlox_namespace"])


class ProgramModule(types.ModuleType):
    """The program as a module, for tests that import from it or replace a name in it."""

    def __init__(self, session):
        super().__init__("solution")
        self.__dict__["_rlox_session"] = session

    def __getattr__(self, name):
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        session = self.__dict__["_rlox_session"]
        if name == "__all__":
            defined = session.request("names")
            # A name of the library comes along only where a test imports it by name.
            return [
                each
                for each in defined
                if type(each) is str and not each.startswith("_") and not names.is_reserved(each)
            ]
        found, value = session.lookup(name)
        if not found:
            raise AttributeError(name)
        return value

    def __setattr__(self, name, value):
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            self.__dict__["_rlox_session"].request("set", name, value)

    def __delattr__(self, name):
        self.__dict__["_rlox_session"].request("unset", name)


class AfterImport:
    """Calls a function with a module of the library when that has been imported."""

    def __init__(self, hooks):
        self._hooks = hooks

    def find_spec(self, name, path=None, target=None):
        hook = self._hooks.pop(name, None)
        if hook is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            hook(module)

        spec.loader.exec_module = exec_module
        return spec


class Runners:
    """Failures that a test statement would not raise: of a unittest runner, of a thread; and what a runner ran."""

    def __init__(self):
        self.first = None
        self.ran = 0

    def note(self, kind, error):
        if self.first is None:
            self.first = "%s: %s" % (kind, describe(error))

    def watch(self):
        """Begins with each of the two as soon as it is there: neither is, unless the statements take it."""
        hooks = {"threading": self._watch_threads, "unittest.result": self._watch_results}
        for name in [name for name in hooks if name in sys.modules]:
            hooks.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, AfterImport(hooks))

    def _watch_threads(self, threading):
        threading.excepthook = lambda args: self.note("in a thread", args.exc_value)

    def _watch_results(self, module):
        result = module.TestResult
        for name in ("addFailure", "addError"):
            setattr(result, name, self._noting(getattr(result, name)))
        result.addSubTest = self._noting(result.addSubTest)
        original = result.startTest

        def start(this, test):
            self.ran += 1
            return original(this, test)

        result.startTest = start

    def _noting(self, original):
        def noting(this, test, *rest):
            error = rest[-1] if rest else None
            if error is not None:
                self.note("in a unittest", error[1])
            return original(this, test, *rest)

        return noting


def run(session, statements, early_stop=False):
    """Runs each statement, or those up to the first failure; a result is (passed, message)."""
    decided = names.Names(statements, session.names)
    namespace = Namespace(session, statements, decided)
    sys.modules["__main__"] = TestModule(namespace)
    sys.modules["solution"] = ProgramModule(session)
    text = "\n".join(statements)
    session.passes_stop = not CONSUMERS.search(text)
    if THREADS.search(text):
        # Without them, the first statement finds the program gone.
        with contextlib.suppress(sessions.SnippetGone):
            session.allow_threads()
    if WAITS.search(text):
        serve_while_sleeping(session)
    runners = Runners()
    runners.watch()
    trees = decided.trees
    references = set().union(*(checks.references(tree) for tree in decided.trees if tree is not None))
    session.unfinished = checks.Unfinished(trees)
    results = []
    for number, statement in enumerate(statements):
        if early_stop and results and not results[-1][0]:
            results.extend([(False, NOT_RUN)] * (len(statements) - number))
            break
        if session.gone:
            results.append((False, "the program had ended: " + session.gone))
            continue
        results.append(run_one(session, namespace, runners, trees, references, number, statement))
        if results[-1][0]:
            # A statement that swallows everything must not turn any of these into a pass.
            if runners.first is not None:
                results[-1] = (False, runners.first)
            elif session.gone:
                results[-1] = (False, "the program ended: " + session.gone)
            elif session.refusals:
                results[-1] = (False, printable(session.refusals[0]))
        runners.first = None
        session.refusals.clear()
    if session.questions <= 0:
        return [(False, message or "the tests never used the program") for _, message in results]
    return results


def run_one(session, namespace, runners, trees, references, number, statement):
    ran = runners.ran
    name = "<test %d>" % number
    try:
        tree = trees[number] or ast.parse(statement, name)
        exec(compile(checks.prepare(tree, references), name, "exec", dont_inherit=True), namespace)
        return (True, None)
    except SystemExit as error:
        # `unittest.main()` ends like this; so does a program, which is no end of the statement.
        if runners.ran > ran and not session.is_mirrored(error) and not came_through(error) and not error.code:
            return (True, None)
        session.exited(describe(error))
        return (False, describe(error))
    except BaseException as error:
        return (False, describe(error))


def came_through(error):
    """Whether an exception passed a question to the program on its way, and so may be the program's doing."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals is sessions.__dict__:
            return True
        trace = trace.tb_next
    return False


def serve_while_sleeping(session):
    """A test that sleeps waits for threads of the program, which may call what it handed over."""
    original = time.sleep
    main = _thread.get_ident()

    def sleep(seconds):
        if _thread.get_ident() == main:
            seconds = session.serve_pending(seconds)
        original(seconds)

    time.sleep = sleep


def describe(error):
    try:
        text = "%s: %s" % (type(error).__name__, error) if str(error) else type(error).__name__
    except BaseException:
        text = type(error).__name__
    return printable(text)


def printable(text):
    """Bounded, and valid Unicode: half a surrogate pair is no JSON for everybody."""
    return text[:MESSAGE_LIMIT].encode("utf-8", "backslashreplace").decode("utf-8")
