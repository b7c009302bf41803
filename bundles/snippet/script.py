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
# In place of a length.
MISSING, TOO_LARGE = (1 << 64) - 1, (1 << 64) - 2
FUNCTIONS = (_ast.FunctionDef, _ast.AsyncFunctionDef)
# Past what a class of the program puts in its place.
TRACEBACK = BaseException.__dict__["__traceback__"].__get__


class Plan:
    """What the controller wants: lengths of 4 bytes, little-endian, before everything."""

    def __init__(self):
        with open(PLAN, "rb", closefd=True) as stream:
            self.name = text(stream)
            self.exit_anywhere = number(stream) == 1
            self.arguments = [text(stream) for _ in range(number(stream))]
            for _ in range(number(stream)):
                place(text(stream), number(stream), stream)
            self.wanted = [text(stream) for _ in range(number(stream))]
        if self.wanted:
            os.set_inheritable(FETCHED, False)

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


def left_at(error, source, name):
    """The line at which `SystemExit` left the program too early, or 0.

    It is no early end where it comes out of the last statement of the text, and passes neither an assertion nor a
    function that makes some: those would be left out.
    """
    lines = []
    trace = TRACEBACK(error)
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            lines.append((trace.tb_lineno, trace.tb_frame.f_code.co_name == "<module>"))
        trace = trace.tb_next
    if not lines:
        return 1
    body = compile(source, name, "exec", ONLY_SYNTAX_TREE).body
    last, before = body[-1], body[-2] if len(body) > 1 else None
    line = lines[0][0]
    apart = before is None or before.end_lineno < last.lineno
    if not (apart and last.lineno <= line <= last.end_lineno) or asserts(last):
        return line
    functions = [node for each in body for node in below(each) if isinstance(node, FUNCTIONS)]
    for passed, in_module in lines:
        around = [node for node in functions if node.lineno <= passed <= node.end_lineno]
        if not in_module and any(asserts(node) for node in around):
            return line
    return 0


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
    return any(isinstance(each, _ast.Assert) for each in below(node))
