"""Where the statements check something, and what a check must not depend on.

Two things follow from the text of a statement alone. Where an assertion reads a list that it also passes to the
program, as in `assert f(xs) == sorted(xs)`, it means the list as it was: what the program does to it waits until
the assertion is through. And an exception from within an assertion leaves that check undone, so that no context
manager of the program may swallow it.
"""

import ast

HOLD, SETTLE = "__rlox_hold__", "__rlox_settle__"


def prepare(tree, references):
    """The statement with its arguments protected where a check reads them."""
    return ast.fix_missing_locations(_Protect(references).visit(tree))


class _Protect(ast.NodeTransformer):
    """Wraps single statements; what is inside functions and loops too."""

    def __init__(self, references):
        self._references = references

    def visit_Assert(self, node):
        parts = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
        again = any(_passed(part) & _read_beside(part) for part in parts)
        kept = _passed(node.test) & self._references
        if again or kept:
            return _wrapped(node, keep=not kept)
        return node

    def visit_Assign(self, node):
        if _passed(node.value) & self._references:
            return _wrapped(node, keep=False)
        return node


def _wrapped(node, keep):
    def call(name, *args):
        return ast.Expr(ast.Call(ast.Name(name, ast.Load()), list(args), []))

    settle = call(SETTLE, ast.Constant(keep))
    made = ast.Try(body=[node], handlers=[], orelse=[], finalbody=[settle])
    return [ast.copy_location(call(HOLD), node), ast.copy_location(made, node)]


def _calls(node):
    return [each for each in ast.walk(node) if isinstance(each, ast.Call)]


def _passed(node):
    """Names that are arguments as they are: `f(xs)`, `f(case, key=k)`."""
    found = set()
    for call in _calls(node):
        for each in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(each, ast.Name):
                found.add(each.id)
    return found


def _sides(tree):
    """Each side of each comparison of values, with the other sides of it; `is` compares no values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and not all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            sides = [node.left, *node.comparators]
            for place, side in enumerate(sides):
                yield side, sides[:place] + sides[place + 1 :]


def _read_beside(node):
    """Names that one side of a comparison reads while the other side passes them on."""
    found = set()
    for side, others in _sides(node):
        read = {name.id for other in others for name in ast.walk(other) if isinstance(name, ast.Name)}
        found |= read & _passed(side)
    return found


def references(tree):
    """Names that a comparison uses as what a call's result has to be."""
    return {
        side.id
        for side, others in _sides(tree)
        if isinstance(side, ast.Name) and any(_is_result(other) for other in others)
    }


def _is_result(node):
    return isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in SIZES)


# Calls whose argument is what is looked at, and no input.
SIZES = frozenset("len sorted list set tuple dict str repr sum min max type id".split())


class Unfinished:
    """Whether an exception came from within a check, or from a place before one that would be left out."""

    def __init__(self, trees):
        self._trees = trees

    def __call__(self, trace):
        while trace is not None:
            name = trace.tb_frame.f_code.co_filename
            if name.startswith("<test ") and self._leaves_check(int(name[6:-1]), trace.tb_lineno):
                return True
            trace = trace.tb_next
        return False

    def _leaves_check(self, number, line):
        tree = self._trees[number]
        if tree is None:
            return False
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Assert)
                and not _is_false(node.test)
                and node.lineno <= line <= node.end_lineno
            ):
                return True
            if isinstance(node, (ast.With, ast.AsyncWith)) and node.lineno <= line <= node.end_lineno:
                after = [each for part in node.body for each in ast.walk(part) if isinstance(each, ast.Assert)]
                if any(each.lineno > line and not _is_false(each.test) for each in after):
                    return True
        return False


def _is_false(node):
    return isinstance(node, ast.Constant) and not node.value
