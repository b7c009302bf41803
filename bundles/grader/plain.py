"""Which jobs leave nothing behind in the process that grades them.

Most test statements only compare what calls with literal arguments return. They bind no name, import nothing and
call nothing of the grader's library but functions of values. Such jobs may be graded one after the other by the
same process; every other job gets a process of its own.
"""

import _sha256
import ast
import builtins
import json

import statements

# Longer ones get a process of their own, and this one is not held up by reading them.
MOST_BYTES = 64 << 10
# Results that are remembered: the same tests come back for each sample of a group.
REMEMBERED = 4096

NODES = (
    ast.Module, ast.Assert, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Call, ast.keyword, ast.Name,
    ast.Load, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict,
    ast.cmpop, ast.boolop, ast.unaryop, ast.operator,
)  # fmt: skip
# Builtins that compute a value and do nothing else. Others, `eval`, `open`, `setattr`, may reach further.
FUNCTIONS = frozenset(
    "abs all any bool complex dict divmod enumerate float frozenset int isinstance len list max min range repr "
    "reversed round set sorted str sum tuple type zip".split()
)
EVERY = frozenset(dir(builtins))

_known = {}


def is_plain(data):
    """Whether a job, as it was handed over, is plain."""
    if len(data) > MOST_BYTES:
        return False
    key = _sha256.sha256(data).digest()
    if key not in _known:
        if len(_known) >= REMEMBERED:
            _known.clear()
        _known[key] = all(_is_plain(statement) for statement in json.loads(data)["tests"])
    return _known[key]


def _is_plain(statement):
    if statements.WAITS.search(statement) or statements.THREADS.search(statement):
        # A word is enough for a run to prepare for that.
        return False
    try:
        tree = ast.parse(statement)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(_is_plain_node(node) for node in ast.walk(tree))


def _is_plain_node(node):
    if not isinstance(node, NODES):
        return False
    if isinstance(node, ast.Name):
        return node.id in FUNCTIONS or not (node.id in EVERY or node.id.startswith("__"))
    # What is called is a name: no method, and no result of a call.
    return not isinstance(node, ast.Call) or isinstance(node.func, ast.Name)
