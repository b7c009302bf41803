"""Answers the grader's questions about the loaded program, one after the other; an answer may take calls back.

Untrusted like all of this process: what it says is the program's claim.
"""

import _thread
import operator
import os
import sys

import exports
import foreign
import staging

import channel
import codec
import shared


class Reply:
    """An answer whose changes are collected when nothing else is being sent."""

    def __init__(self, word, result, changes, address):
        self.parts = (word, result, changes, address)

    def complete(self):
        word, result, changes, address = self.parts
        return (word, result, changes(), address)


class Stranger:
    """Nothing that a program knows: only an object that equals everything equals it."""

    __slots__ = ()


# Addresses: this thread; where the grader asks for another one. Questions of the program have positive
# addresses, further threads of the tests negative ones.
MAIN, THREADS = 0, -1


class Server:
    """One conversation with the grader."""

    def __init__(self, descriptor):
        self._namespace = {}
        self._foreign = foreign.Foreigners(self._ask)
        self._exports = exports.Exports(self._foreign)
        containers = shared.Shared(1)
        self._encoder = codec.Encoder(self._exports.handle, containers, self._exports.undescribed)
        decoder = codec.Decoder(
            {codec.PROGRAM: self._exports.__getitem__, codec.TESTS: self._foreign.of_parts}, containers
        )
        self._channel = channel.Channel(
            lambda count: os.read(descriptor, count),
            lambda view: os.write(descriptor, view),
            self,
            decoder,
            lambda message: message[-1],
        )
        self._stage = staging.Stage()
        self._loop = None
        self._last = {}
        self._asked = 0
        # The request that each thread answers now, for the questions that it asks meanwhile.
        self._answering = _thread._local()

    def send(self, message):
        self._channel.send(message)

    def serve(self, namespace):
        self._namespace = namespace
        self.send(("ready", tuple(name for name in namespace if isinstance(name, str))))
        try:
            self._serve(MAIN)
        except codec.Closed:
            return

    def _serve(self, address):
        while True:
            self._answer(self._channel.receive(address))

    def _serve_threads(self):
        """Starts a thread for each further thread of the tests."""
        try:
            while True:
                _thread.start_new_thread(self._serve_quietly, (self._channel.receive(THREADS)[0],))
        except codec.WireError:
            return

    def _serve_quietly(self, address):
        try:
            self._serve(address)
        except codec.WireError:
            return

    def _ask(self, operation, *arguments, **named):
        """Asks the grader about an object of the tests, and serves it until the answer is there."""
        self._asked += 1
        address = self._asked
        on = getattr(self._answering, "address", None)
        self.send(("ask", operation, arguments, tuple(named.items()), address, on))
        while True:
            message = self._channel.receive(address)
            if message[0] == "returned":
                return message[1]
            if message[0] == "raised":
                raise message[1]
            self._answer(message)

    def encode(self, message):
        """Encodes with room for deep values, whatever recursion limit the program has set."""
        if type(message) is Reply:
            return self._encoded(lambda: self._encoder.encode(message.complete()))
        return self._encoded(lambda: self._encoder.encode(message))

    def _encoded(self, encode):
        """Runs the encoder with room for deep values, whatever recursion limit the program has set."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 4 * codec.MAX_DEPTH + 1000))
        try:
            return encode()
        finally:
            sys.setrecursionlimit(limit)

    def _answer(self, message):
        operation, arguments, released, address = message
        # From here on nothing of this module refers to an argument: what the program did not keep is its own.
        del message
        self._exports.release(released)
        before = getattr(self._answering, "address", None)
        self._answering.address = address
        try:
            with self._stage:
                if operation == "call":
                    target, args, named = arguments
                    del arguments
                    named = dict(named)
                    result = _call(target, [args], [named])
                    del args, named
                else:
                    result = getattr(self, "do_" + operation)(*arguments)
                    del arguments
            word = "value"
        except codec.WireError:
            raise
        except BaseException as error:
            # Its frames would keep the arguments.
            word, result = "raised", error.with_traceback(None)
            arguments = args = named = None
        finally:
            self._answering.address = before
        try:
            self._channel.send(Reply(word, result, self._changes, address))
        except codec.Closed:
            raise
        except Exception as error:
            self._exports.undescribed(0)
            self._channel.send(("raised", ValueError("result cannot cross: %s" % error), (), address))

    def _changes(self):
        """What else is different now: values of the program's own container classes, streams, files."""
        changes = []
        for number, value in self._exports.stored.items():
            stored = codec.storage(value)
            data = self._encoder.content_unless(stored, self._last.get(number))
            if data is not None:
                self._last[number] = data
                changes.append(("stored", number, codec.ByValue(stored)))
        return (*changes, *self._stage.changes())

    def do_get(self, name):
        return (name in self._namespace, self._namespace.get(name))

    def do_set(self, name, value):
        self._namespace[name] = value

    def do_unset(self, name):
        del self._namespace[name]

    def do_threads(self):
        _thread.start_new_thread(self._serve_threads, ())

    def do_names(self):
        return tuple(name for name in self._namespace if isinstance(name, str))

    def do_getattr(self, value, name):
        return getattr(value, name)

    def do_setattr(self, value, name, content):
        setattr(value, name, content)

    def do_delattr(self, value, name):
        delattr(value, name)

    def do_special(self, name, value, *args):
        function = SPECIAL.get(name) or getattr(operator, name)
        return function(value, *args)

    def do_isinstance(self, value, kind):
        return isinstance(value, kind)

    def do_issubclass(self, value, kind):
        return issubclass(value, kind)

    def do_compare(self, one, other):
        """Whether they are equal by their own rules, and what they consist of."""
        return (bool(one == other), *(codec.ByValue(state(each)) for each in (one, other)))

    def do_stranger(self, value):
        try:
            return bool(value == Stranger())
        except Exception:
            return False

    def do_exec(self, source, names):
        """Runs text that the tests want to run: it came from here, so it runs here."""
        scope = dict(names)
        before = set(scope)
        exec(compile(source, "<text>", "exec"), scope)
        return tuple(
            (name, value) for name, value in scope.items() if name not in before and name != "__builtins__"
        )

    def do_dir(self, value):
        return tuple(dir(value))

    def do_pickled(self, value):
        import pickle

        return pickle.loads(pickle.dumps(value))

    def do_copy(self, value, deep):
        import copy

        return copy.deepcopy(value) if deep else copy.copy(value)

    def do_signature(self, function):
        import inspect

        empty = inspect.Parameter.empty
        signature = inspect.signature(function)
        parameters = [
            (*tuple(None if part is empty else (part,) for part in (p.default, p.annotation)), p.name, int(p.kind))
            for p in signature.parameters.values()
        ]
        returns = signature.return_annotation
        return (tuple(parameters), None if returns is empty else (returns,))

    def do_spawn(self, awaitable):
        """Starts a coroutine of the program in the program's own event loop."""
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()

        async def awaited():
            return await awaitable

        asyncio.set_event_loop(self._loop)
        return self._loop.create_task(awaited())

    def do_drive(self, task, seconds):
        """Lets the event loop run for a moment; (True, result) once the task is done."""
        import asyncio

        async def moment():
            await asyncio.wait({task}, timeout=seconds)

        self._loop.run_until_complete(moment())
        return (True, task.result()) if task.done() else (False, None)

    def do_cancel(self, task):
        task.cancel()

    def do_stage(self, overrides):
        self._stage.set(overrides)

    def do_files(self, files):
        self._stage.write_files(files)

    def do_subclass(self, name, bases, body, named):
        return foreign.derive(name, bases, body, dict(named))

    def do_members(self, kind):
        """Names that an instance of a subclass may reach through `super()`."""
        found = {}
        for base in reversed(kind.__mro__[:-1]):
            found.update((each, callable(value)) for each, value in base.__dict__.items())
        return tuple(
            each for each in found if not each.startswith("__") or each in foreign.FORWARDED or each == "__init__"
        )

    def do_inherited(self, kind, name, value):
        """What `super(...).name` means for this instance, beginning with `kind` itself."""
        for base in kind.__mro__:
            if name in base.__dict__:
                found = base.__dict__[name]
                return found.__get__(value, type(value)) if hasattr(found, "__get__") else found
        raise AttributeError(name)

    def do_ping(self, number):
        sys.stdout.flush()
        sys.stderr.flush()
        return number


def _call(target, args, named):
    """Calls with arguments to which no frame of this module refers any more."""
    return target(*args.pop(), **named.pop())


SPECIAL = {
    "len": len,
    "iter": iter,
    "next": next,
    "reversed": reversed,
    "bool": bool,
    "hash": hash,
    "str": str,
    "repr": repr,
    "format": format,
    "bytes": bytes,
    "int": int,
    "float": float,
    "complex": complex,
    "round": round,
    "divmod": divmod,
    "rdivmod": lambda value, other: divmod(other, value),
    "pow": pow,
    "and": operator.and_,
    "or": operator.or_,
    "trunc": lambda value: type(value).__trunc__(value),
    "floor": lambda value: __import__("math").floor(value),
    "ceil": lambda value: __import__("math").ceil(value),
    "enter": lambda value: type(value).__enter__(value),
    "exit": lambda value, *error: type(value).__exit__(value, *error),
    "fspath": lambda value: os.fspath(value),
    "aiter": lambda value: type(value).__aiter__(value),
    "anext": lambda value: type(value).__anext__(value),
    "aenter": lambda value: type(value).__aenter__(value),
    "aexit": lambda value, *error: type(value).__aexit__(value, *error),
}


def state(value):
    """Everything that an instance holds, or None where it cannot be listed."""
    try:
        content = dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        content = {}
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            # Without contextlib, which every program would wait for.
            try:  # noqa: SIM105
                content[name] = object.__getattribute__(value, name)
            except AttributeError:
                pass
    return content or None
