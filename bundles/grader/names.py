"""Whose a name in the statements is: the tests', the program's, or the library's.

Decided from the statements' text and from the set of names that the program defines, before anything runs. A name
with which tests compare must not be the program's, or it could answer `all(...)` or `isclose(...)` itself; the
function under test may have such a name all the same.
"""

import ast
import builtins
import importlib
import sys

import library

# Builtins whose names programming tasks give to the function to write. No test compares with these.
TASK_NAMES = frozenset(
    "bin divmod filter format hex input map max min oct pow range reversed round slice sorted sum zip".split()
)
# Names that tests take from the library without importing them, relying on the program's import.
WELL_KNOWN = {
    "math": "sqrt isqrt pi tau inf nan floor ceil log log2 log10 exp sin cos tan hypot fabs gcd factorial".split(),
    "functools": "reduce partial lru_cache wraps".split(),
    "datetime": "date datetime timedelta timezone".split(),
    "unittest": ["TestCase"],
    "statistics": "mean median stdev".split(),
    "heapq": "nsmallest nlargest heapify heappush heappop".split(),
    "bisect": "bisect_left bisect_right insort".split(),
    "itertools": "chain islice zip_longest".split(),
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits punctuation".split(),
}
LIBRARY = {name: module for module, names in WELL_KNOWN.items() for name in names}
LIBRARY.update(library.TRUSTED)
# What tests judge with, and no task asks for.
JUDGES = frozenset(("TestCase",))
# Modules that the grader does not have, and that no program may stand for.
FOREIGN_MODULES = frozenset("np numpy pd pandas torch scipy pytest".split())


class Reading:
    """What the statements' text says about names."""

    def __init__(self, statements):
        self.trees = []
        # Called or compared with nothing but literals around: what a test names as its subject.
        self.subjects = set()
        # In a comparison at any depth.
        self.compared = set()
        # `name(...)` and `name.attribute`.
        self.called = set()
        self.opened = set()
        # Attributes of what a name's call gives: `Fraction(1, 2).show`.
        self.attributes = {}
        for statement in statements:
            try:
                tree = ast.parse(statement)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                tree = None
            self.trees.append(tree)
            if tree is not None:
                for node in ast.walk(tree):
                    self._read(node)

    def _read(self, node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            self.called.add(node.func.id)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name):
                self.opened.add(node.value.id)
            elif isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
                self.attributes.setdefault(node.value.func.id, set()).add(node.attr)
        elif isinstance(node, ast.Compare):
            for each in (node.left, *node.comparators):
                self.compared.update(inner.id for inner in ast.walk(each) if isinstance(inner, ast.Name))
            if all(is_literal(each) for each in node.comparators):
                left = node.left
                if isinstance(left, ast.Call) and all(is_literal(each) for each in left.args):
                    left = left.func
                if isinstance(left, ast.Name):
                    self.subjects.add(left.id)


def is_literal(node):
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


# Where a name may be bound otherwise than by an assignment to it.
SCOPES = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Import, ast.ImportFrom, ast.Global),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr, ast.ExceptHandler, ast.Match),
)


def free_names(statements, trees):
    """Names that the statements read without binding them."""
    import symtable

    free = set()
    bound = set()
    for statement, tree in zip(statements, trees, strict=True):
        if tree is None:
            # Not Python; it fails when its turn comes.
            continue
        if not any(isinstance(node, SCOPES) for node in ast.walk(tree)):
            for node in ast.walk(tree):
                if isinstance(node, ast.Name):
                    (free if isinstance(node.ctx, ast.Load) else bound).add(node.id)
            continue
        try:
            tables = [symtable.symtable(statement, "<test>", "exec")]
        except (SyntaxError, ValueError, RecursionError):
            continue
        while tables:
            table = tables.pop()
            tables.extend(table.get_children())
            top = table.get_type() == "module"
            for symbol in table.get_symbols():
                if symbol.is_referenced() and (top or symbol.is_global()):
                    free.add(symbol.get_name())
                if top and (symbol.is_assigned() or symbol.is_imported()):
                    bound.add(symbol.get_name())
    return free - bound


def is_reserved(name):
    return name in builtins.__dict__ or name in library.TRUSTED or name in sys.stdlib_module_names


class Names:
    """The decision for every free name of the statements."""

    def __init__(self, statements, defined):
        self._reading = Reading(statements)
        free = free_names(statements, self._reading.trees)
        self.free = {name for name in free if not name.startswith("__") or name == "__doc__"}
        self._defined = defined
        # Of names that can only be the program's, there is one that the statements ask for.
        others = {name for name in self.free & defined if not is_reserved(name) and name not in LIBRARY}
        self._has_other_subject = bool(others)
        self._of_program = {name for name in self.free if self._is_program(name)}

    @property
    def trees(self):
        """Each statement's tree, or None where it is no Python."""
        return self._reading.trees

    def of_program(self, name):
        return name in self._of_program or not (is_reserved(name) or name in LIBRARY or name in FOREIGN_MODULES)

    def of_library(self, name):
        """This process's own object of the name, or None."""
        if name in self._of_program:
            return None
        if name in LIBRARY and (name in library.TRUSTED or name in self._defined):
            return getattr(importlib.import_module(LIBRARY[name]), name)
        if name in sys.stdlib_module_names and (name in self._defined or name in library.TRUSTED_MODULES):
            return library.library_module(name)
        return None

    def _is_program(self, name):
        """A name that could be the library's, and is what the program has to write."""
        reading = self._reading
        if name in reading.subjects:
            # Without a definition it is the builtin, or the library's object, that the program lacks.
            return name in self._defined
        if name in TASK_NAMES and not self._has_other_subject:
            rest = {each for each in self.free if each in TASK_NAMES}
            return len(rest) == 1
        if name not in self._defined or name in JUDGES:
            return False
        if name in LIBRARY and name not in library.TRUSTED:
            own = getattr(importlib.import_module(LIBRARY[name]), name)
            if name in reading.called and not callable(own):
                return True
            if name in reading.opened and not isinstance(own, type):
                return True
            return not self._has_other_subject
        if name in sys.stdlib_module_names:
            # A module has attributes and is not called.
            return name in reading.called and name not in reading.opened
        if name in library.TRUSTED_CLASSES:
            own = getattr(importlib.import_module(library.TRUSTED[name]), name)
            return name not in reading.compared or bool(reading.attributes.get(name, set()) - set(dir(own)))
        return False
