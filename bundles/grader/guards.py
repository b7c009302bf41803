"""Keeps text of the program from running in the grader, where a test would evaluate it.

`eval(f(1))` or `pickle.loads(f(1))` in a test means: take what the program returned as an expression or as data.
An expression may compute, and call the program; it may not reach anything else of this process.
"""

import ast
import builtins
import os
import sys

import mirror

_eval, _exec, _compile = builtins.eval, builtins.exec, builtins.compile

CALLABLE = frozenset(
    "abs bool bytes complex dict float frozenset int len list max min pow range round set sorted str sum tuple "
    "Decimal Fraction date datetime timedelta OrderedDict Counter deque defaultdict".split()
)
NODES = (
    ast.Expression, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.List, ast.Tuple,
    ast.Set, ast.Dict, ast.Name, ast.Load, ast.Call, ast.keyword, ast.Starred, ast.Subscript, ast.Slice,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
REFUSED = (
    "ctypes.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.kill", "os.spawn",
    "gc.", "sys._current", "syslog.", "signal.pthread_kill", "cpython.run",
)  # fmt: skip
PRIVATE = ("/proc", "/sys", "/dev")


class Refused(TypeError):
    """A test asked to run what the program sent."""


def constants(statements):
    """Every text that the statements themselves hold."""
    found = set()
    for statement in statements:
        try:
            tree = ast.parse(statement)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        found.update(n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) is str)
    return found


_MIRRORS = (mirror.MirrorType, mirror.MirrorFunction)


class Guard:
    """`eval`, `exec` and `compile` as the statements see them."""

    def __init__(self, session, statements):
        self._own = None
        self._statements = statements
        self._session = session
        # Code that `compile` made here, kept so that its id means it.
        self._compiled = {}

    def _is_own(self, text):
        if type(text) is bytes:
            text = text.decode("utf-8", "replace")
        if type(text) is not str:
            # A code object has to come from `compile`, which has looked at its text.
            return id(text) in self._compiled
        if self._own is None:
            self._own = constants(self._statements)
        return text in self._own or text.strip() in self._own

    def eval(self, source, scope=None, local=None, /):
        frame = sys._getframe(1)
        given = scope is not None or local is not None
        local = frame.f_locals if scope is None and local is None else local
        scope = frame.f_globals if scope is None else scope
        if self._is_own(source):
            return _eval(source, scope, scope if local is None else local)
        if type(source) not in (str, bytes):
            raise Refused("code of the program is not run by the tests")
        tree = ast.parse(source.strip(), mode="eval")
        names = {**scope, **(local or {})} if given else {}
        for node in ast.walk(tree):
            if not isinstance(node, NODES):
                raise Refused("text of the program is evaluated only as an expression")
            if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name):
                raise Refused("text of the program calls something of the tests")
            if isinstance(node, ast.Name) and not self._may_name(node.id, names, scope):
                raise Refused("text of the program names something of the tests")
        return _eval(_compile(tree, "<program's expression>", "eval"), scope, scope if local is None else local)

    def _may_name(self, name, given, scope):
        """Nothing of the tests but what they passed for it, and what is the program's."""
        if name in CALLABLE or name in given:
            return True
        return not name.startswith("__") and isinstance(scope.get(name), _MIRRORS)

    def exec(self, source, scope=None, local=None, /):
        frame = sys._getframe(1)
        scope = frame.f_globals if scope is None else scope
        local = scope if local is None else local
        if self._is_own(source):
            _exec(source, scope, local)
            return
        if type(source) not in (str, bytes):
            raise Refused("code of the program is not run by the tests")
        # It came from the program's container, and runs there.
        names = (
            tuple((k, v) for k, v in scope.items() if k != "__builtins__") if scope is not frame.f_globals else ()
        )
        for name, value in self._session.request("exec", source, names):
            if type(name) is str and not name.startswith("__"):
                local[name] = value

    def compile(self, source, *args, **kwargs):
        if not self._is_own(source):
            ast.parse(source if type(source) in (str, bytes) else "")
            raise Refused("text of the program is not compiled by the tests")
        made = _compile(source, *args, **kwargs)
        self._compiled[id(made)] = made
        return made

    def builtins(self):
        """Builtins for the statements; an attribute that a test replaces in `builtins` is seen all the same."""
        found = dict(builtins.__dict__)
        found.update(eval=self.eval, exec=self.exec, compile=self.compile)
        return found


def install():
    """Refuses, for the rest of this process, what no test needs and what would hand it over."""
    sys.addaudithook(_audit)


def _audit(event, args):
    if event == "pickle.find_class":
        if args not in PICKLED:
            raise Refused("a pickle names %s.%s" % args)
    elif event == "open":
        path = args[0]
        if type(path) in (str, bytes):
            path = os.path.abspath(os.fsdecode(path))
            if path.startswith(PRIVATE) and path not in ("/dev/null", "/dev/urandom"):
                raise PermissionError("the grader's own %s" % path)
    elif event == "compile":
        _audit_compile(*args)
    elif event in ("marshal.loads", "marshal.load", "code.__new__"):
        if sys._getframe(1).f_code.co_filename.startswith("<test"):
            raise Refused("code of the program is not run by the tests")
    elif event.startswith(REFUSED):
        raise PermissionError("tests run where %s is refused" % event)


def _audit_compile(source, name):
    """Text that is compiled is the tests' own, the library's, or made by a part of the library that may."""
    if (
        source is None
        or type(name) is not str
        or name.startswith(("<test ", "<program's", sys.base_prefix, "<frozen"))
    ):
        return
    caller = sys._getframe(2).f_globals.get("__name__", "")
    if name == "<timeit-src>" and type(source) is str and "_stmt()" in source:
        return
    if caller.partition(".")[0] in COMPILERS and not name.startswith(("<doctest", "<timeit", "/tmp")):
        return
    raise Refused("text of the program is not run by the tests (%s)" % name)


# Parts of the library that compile what they have written themselves.
COMPILERS = frozenset(
    "collections dataclasses typing enum functools ast symtable inspect linecache guards statements".split()
)
PICKLED = frozenset(
    [
        ("builtins", name)
        for name in "set frozenset bytearray complex range slice bytes list dict tuple int float str".split()
    ]
    + [("collections", name) for name in "OrderedDict Counter deque defaultdict".split()]
    + [("datetime", name) for name in "date datetime time timedelta timezone".split()]
    + [("decimal", "Decimal"), ("fractions", "Fraction"), ("uuid", "UUID"), ("array", "_array_reconstructor")]
    + [("_codecs", "encode"), ("copyreg", "_reconstructor"), ("copyreg", "__newobj__"), ("mirror", "unpickled")]
)
