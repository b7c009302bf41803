"""Inside the snippet's container: a program that runs as a script with files, arguments and a stricter end.

For servers that only run programs: who asks compares the output, or has put checks into the program's own text. So
files are put beside the program, some are read back, and leaving by `sys.exit` is an end only where no check can
have been left out.

In the untrusted process, like everything of the driver: what it writes to its descriptors is the program's word.
"""

# Two of them are needed after the program, and so imported before its directory is searched for modules.
import _ast
import linecache  # noqa: F401
import os
import stat
import traceback  # noqa: F401

PLAN, FETCHED = 5, 6
STEP = 1 << 20
ONLY_SYNTAX_TREE = 0x400
# Which `SystemExit` is an end: out of the last statement, anywhere, whatever it leaves out.
LAST, ANYWHERE, ANY = range(3)
# Where no code of the program is.
LIBRARY = ("<frozen ", os.path.dirname(os.__file__) + "/", "/opt/rlox/site/")
# In place of a length.
MISSING, TOO_LARGE = (1 << 64) - 1, (1 << 64) - 2
FUNCTIONS = (_ast.FunctionDef, _ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, _ast.ClassDef)
# Past what a class of the program puts in its place.
TRACEBACK = BaseException.__dict__["__traceback__"].__get__


class Plan:
    """What the controller wants: lengths of 4 bytes, little-endian, before everything."""

    def __init__(self):
        with open(PLAN, "rb", closefd=True) as stream:
            self.name = text(stream)
            self._exits = number(stream)
            self.arguments = [text(stream) for _ in range(number(stream))]
            for _ in range(number(stream)):
                place(text(stream), number(stream), stream)
            self.wanted = [text(stream) for _ in range(number(stream))]
        if self.wanted:
            os.set_inheritable(FETCHED, False)

    def left_early_at(self, error, source):
        """The line at which `SystemExit` left the program too early, or 0."""
        return 0 if self._exits == ANY else left_at(error, source, self.name, self._exits == ANYWHERE)

    def hand_back(self):
        """Writes the wanted files: number, length and content of each. The file to write to has a fixed size."""
        if not self.wanted:
            return
        offset, room = 0, os.fstat(FETCHED).st_size
        for index, path in enumerate(self.wanted, 1):
            descriptor = opened(path)
            length = MISSING if descriptor is None else os.fstat(descriptor).st_size
            if descriptor is not None and offset + 12 + length > room:
                os.close(descriptor)
                descriptor, length = None, TOO_LARGE
            begin = offset + 12
            if descriptor is not None:
                length = copied(descriptor, begin, length)
                os.close(descriptor)
            # The content is there before it is announced.
            os.pwrite(FETCHED, index.to_bytes(4, "little") + length.to_bytes(8, "little"), offset)
            offset = begin + (length if length < TOO_LARGE else 0)


def number(stream):
    return int.from_bytes(stream.read(4), "little")


def text(stream):
    return stream.read(number(stream)).decode()


def place(path, left, stream):
    """Writes one file below the working directory; the controller has checked the name."""
    directory = os.path.dirname(path)
    if directory:
        os.makedirs(directory, exist_ok=True)
    with open(path, "xb") as file:
        while left:
            part = stream.read(min(left, STEP))
            file.write(part)
            left -= len(part)


def opened(path):
    """A descriptor of a regular file, or None."""
    try:
        # A pipe without a writer must not hold it up.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def copied(descriptor, begin, length):
    """Copies a file of that length to the place; how many bytes there were."""
    done = 0
    while done < length:
        part = os.pread(descriptor, min(STEP, length - done), done)
        if not part:
            break
        done += os.pwrite(FETCHED, part, begin + done)
    return done


def left_at(error, source, name, anywhere):
    """The line at which `SystemExit` left the program too early, or 0.

    It is no early end where it passes neither an assertion nor a function or a file that makes some, and none
    comes after it: those would be left out. Unless it may be anywhere, it has to come out of the last statement.
    """
    passed = []
    trace = TRACEBACK(error)
    while trace is not None:
        code = trace.tb_frame.f_code
        if passed or code.co_filename == name:
            passed.append((code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    if not passed:
        return 1
    line = passed[0][1]
    body = compile(source, name, "exec", ONLY_SYNTAX_TREE).body
    functions = [node for each in body for node in below(each) if isinstance(node, FUNCTIONS)]
    for file, at, within in passed:
        if file != name:
            checks = not file.startswith(LIBRARY) and may_check(file)
        elif within == "<module>":
            checks = any(asserts(node) for node in body if node.lineno <= at <= node.end_lineno)
        else:
            checks = any(asserts(node) for node in functions if node.lineno <= at <= node.end_lineno)
        if checks:
            return line
    if anywhere:
        left_out = [node for node in body if node.lineno > line and not isinstance(node, DEFINITIONS)]
        return line if any(asserts(node) for node in left_out) else 0
    last, before = body[-1], body[-2] if len(body) > 1 else None
    apart = before is None or before.end_lineno < last.lineno
    return 0 if apart and last.lineno <= line <= last.end_lineno else line


def may_check(file):
    """Whether a text of the program other than its main file makes assertions; one that cannot be read may."""
    try:
        with open(file, "rb") as stream:
            return asserts(compile(stream.read(), file, "exec", ONLY_SYNTAX_TREE))
    except Exception:
        return True


def below(node):
    """The node and all below it."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        for field in node._fields:
            value = getattr(node, field, None)
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, _ast.AST):
                    waiting.append(child)


def asserts(node):
    return any(is_assertion(each) for each in below(node))


def is_assertion(node):
    """`assert`, `raise AssertionError`, and calls of functions that are named like `assert_equal`."""
    if isinstance(node, _ast.Raise):
        raised = node.exc.func if isinstance(node.exc, _ast.Call) else node.exc
        return word(raised) == "AssertionError"
    return isinstance(node, _ast.Assert) or (isinstance(node, _ast.Call) and word(node.func).startswith("assert"))


def word(node):
    """The last word of a dotted name."""
    return getattr(node, "id", None) or getattr(node, "attr", None) or ""
