"""Inside the snippet's container: runs the program, then answers calls on it.

This module is in the untrusted process: the program can read and change all of it. Nothing here decides
anything. It only has to be right for programs that do not attack it; for those that do, the grader and the
launcher outside are what counts.

`driver.pyc run`: the program is descriptor 3 (or standard input), and runs as a script.
`driver.pyc serve`: the program is descriptor 3 and is loaded; then calls come on descriptor 4.
"""

import os
import sys

NAME = "main.py"
SOURCE, CHANNEL = 3, 4
SIMPLE_OPERATIONS = {
    "len": len,
    "str": str,
    "repr": repr,
    "truth": bool,
    "iter": iter,
    "next": next,
    "hash": hash,
    "int": int,
    "float": float,
    "index": lambda value: value.__index__(),
    "enter": lambda value: type(value).__enter__(value),
}


def read_source():
    try:
        stream = open(SOURCE, "rb", closefd=True)
    except OSError:
        stream = sys.stdin.buffer
    with stream:
        return stream.read()


def load(source, name):
    """Executes the program as a module of this name and returns its namespace."""
    module = type(sys)(name)
    module.__builtins__ = __builtins__
    module.__file__ = NAME
    sys.modules[name] = module
    # The interpreter runs without `site`, which would define these.
    __builtins__.exit = __builtins__.quit = sys.exit
    sys.argv = [NAME]
    exec(compile(source, NAME, "exec"), module.__dict__)
    return module.__dict__


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


def run(source):
    try:
        load(source, "__main__")
    except SystemExit:
        raise
    except BaseException as error:
        report(error, source)
        sys.exit(1)


class Server:
    """Answers the grader's calls one after the other; a call may call back."""

    def __init__(self, channel, codec):
        self.codec = codec
        self.read = lambda count: os.read(channel, count)
        self.write = lambda view: os.write(channel, view)
        self.objects = {}
        self.numbers = {}
        self.namespace = {}
        self.encoder = codec.Encoder(self.opaque)
        self.decoder = codec.Decoder(lambda number, kind, name: self.objects[number], self.callback)

    def opaque(self, value):
        codec = self.codec
        if isinstance(value, type(sys)):
            return codec.Ref(0, "module", str(getattr(value, "__name__", "")))
        number = self.numbers.get(id(value))
        if number is None:
            number = len(self.objects) + 1
            # Keeping the object keeps its id from meaning another one.
            self.objects[number] = value
            self.numbers[id(value)] = number
        if isinstance(value, type) and issubclass(value, BaseException):
            return codec.Ref(number, "exception:" + builtin_base(value), value.__name__)
        if not isinstance(value, type) and not callable(value):
            return codec.Ref(number, "object", type(value).__name__)
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if isinstance(module, str) and isinstance(name, str) and module not in ("solution", "builtins"):
            return codec.Ref(number, "library:" + module, name)
        if isinstance(module, str) and module == "builtins" and isinstance(name, str):
            return codec.Ref(number, "builtin", name)
        return codec.Ref(number, "callable", name if isinstance(name, str) else "")

    def callback(self, number):
        def function(*args, **kwargs):
            self.send(("callback", number, args, kwargs))
            return self.serve_until("returned")

        return function

    def send(self, message):
        self.codec.send_frame(self.write, self.encoder.encode(message))

    def serve_until(self, awaited):
        """Serves requests until the answer to a callback is here."""
        while True:
            message = self.decoder.decode(self.codec.receive_frame(self.read))
            if message[0] == awaited:
                return message[1]
            if message[0] == "raised":
                raise exception(message[1], message[2])
            self.answer(message)

    def serve(self):
        while True:
            try:
                frame = self.codec.receive_frame(self.read)
            except self.codec.Closed:
                return
            self.answer(self.decoder.decode(frame))

    def answer(self, message):
        operation, *arguments = message
        try:
            result = self.perform(operation, arguments)
        except self.codec.WireError:
            raise
        except BaseException as error:
            if isinstance(error, (SystemExit, KeyboardInterrupt)):
                raise
            self.send(self.failure(error))
            return
        try:
            self.send(result)
        except self.codec.Closed:
            raise
        except self.codec.WireError as error:
            self.send(("raised", "ValueError", "ValueError", 0, "result cannot cross: %s" % error, ()))

    def failure(self, error):
        kind = type(error)
        number = 0
        if kind.__module__ != "builtins":
            number = self.opaque(kind).number
        try:
            text = str(error)[:2000]
        except BaseException:
            text = ""
        plain = (bool, int, float, str, bytes, type(None))
        args = tuple(a for a in error.args if type(a) in plain and len(repr(a)) < 2000)
        return ("raised", builtin_base(kind), kind.__name__, number, text, args)

    def perform(self, operation, arguments):
        if operation == "get":
            (name,) = arguments
            if name not in self.namespace:
                return ("absent",)
            return ("value", self.namespace[name], ())
        if operation == "call":
            target, args, kwargs = arguments
            value = target(*args, **kwargs)
            return ("value", value, tuple(a for a in args if type(a) in (list, dict, set, bytearray)))
        if operation == "getattr":
            return ("value", getattr(*arguments), ())
        if operation == "setattr":
            return ("value", setattr(*arguments), ())
        if operation == "delattr":
            return ("value", delattr(*arguments), ())
        if operation == "getitem":
            return ("value", arguments[0][arguments[1]], ())
        if operation == "setitem":
            arguments[0][arguments[1]] = arguments[2]
            return ("value", None, ())
        if operation == "delitem":
            del arguments[0][arguments[1]]
            return ("value", None, ())
        if operation == "isinstance":
            return ("value", isinstance(arguments[0], arguments[1]), ())
        if operation == "issubclass":
            return ("value", issubclass(arguments[0], arguments[1]), ())
        if operation == "exit":
            subject = arguments[0]
            return ("value", type(subject).__exit__(subject, None, None, None), ())
        if operation == "operator":
            import operator

            return ("value", getattr(operator, arguments[0])(*arguments[1:]), ())
        if operation == "ping":
            sys.stdout.flush()
            sys.stderr.flush()
            return ("value", arguments[0], ())
        if operation in SIMPLE_OPERATIONS:
            return ("value", SIMPLE_OPERATIONS[operation](*arguments), ())
        raise ValueError("unknown operation %r" % (operation,))


def builtin_base(kind):
    """The nearest builtin exception class: what `except` in a test statement can name."""
    for base in kind.__mro__:
        if base.__module__ == "builtins":
            return base.__name__
    return "Exception"


def exception(base, text):
    import builtins

    kind = getattr(builtins, base, Exception)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = Exception
    return kind(text)


def serve(source):
    sys.path.insert(0, "/opt/rlox")
    import codec

    del sys.path[0]
    server = Server(CHANNEL, codec)
    os.set_inheritable(CHANNEL, False)
    try:
        # Not "__main__": a guarded main part is for the program as a script.
        server.namespace = load(source, "solution")
    except SystemExit as error:
        server.send(("failed", "SystemExit", "SystemExit: %r" % (error.code,)))
        raise
    except BaseException as error:
        report(error, source)
        server.send(("failed", type(error).__name__, "%s: %s" % (type(error).__name__, str(error)[:500])))
        sys.exit(1)
    server.send(("ready",))
    server.serve()
    sys.stdout.flush()
    sys.stderr.flush()
    # The answer is known outside; threads and exit handlers of the program have no more say.
    os._exit(0)


def main():
    serving = sys.argv[1:2] == ["serve"]
    source = read_source()
    if serving:
        serve(source)
    else:
        run(source)


if __name__ == "__main__":
    main()
