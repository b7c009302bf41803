"""One conversation with one program: questions go out, claims come back, and everything unexpected ends it."""

import _thread
import collections.abc
import contextlib
import dataclasses
import os
import select
import socket
import time
import types
import weakref

import mirror
from handed import Handed
from library import builtin_error, library_class, library_function, library_module, library_type

import codec
import shared
from channel import Channel

# Exceptions of the program that are kept for their identity.
MAX_ERRORS = 500
# Questions after which a result is what it was before.
UNCHANGING = (("len",), ("iter",), ("next",), ("getitem",))
# How long a test waits for a callback that a thread of the program makes by itself.
ASIDE_SECONDS = 0.1
# Perturbations of one constructor call that a lying `__eq__` has to get wrong.
PROBES = 6
# How often a suspicious answer is asked for again, among the controls.
REPEATS = 5


class SnippetGone(BaseException):
    """The program's process ended or broke the protocol. Not an Exception: tests must not swallow it."""


class UnavailableModule:
    """A module that only the program has. Its functions would let the program judge itself."""

    def __init__(self, name):
        self.__dict__["_name"] = name[:80]

    def __getattr__(self, name):
        raise ImportError("the tests have no module %r of their own" % self._name)


class Session:
    """The grader's end of the channel."""

    def __init__(self, channel):
        self._socket = channel
        self._here = _thread._local()
        self._main = _thread.get_ident()
        self._threads = 0
        self._mirrors = weakref.WeakValueDictionary()
        self._values = {}
        self._errors = {}
        self._error_numbers = {}
        self._classes = {}
        self._coroutines = weakref.WeakKeyDictionary()
        self._made = {}
        # What results said of their length, and how many items they had.
        self._lengths = {}
        self._handed = Handed(self)
        containers = shared.Shared(2)
        self._encoder = codec.Encoder(self._handle, containers)
        self._decoder = codec.Decoder(
            {
                codec.PROGRAM: self._of_program,
                codec.STORED: self._stored,
                codec.TESTS: self._handed.resolve,
            },
            containers,
        )
        self._channel = Channel(channel.recv, channel.send, self._encoder, self._decoder, self._address)
        self._containers = containers
        # What a statement asked that the program must not answer, and its own checks that failed in a callback.
        self.refusals = []
        # Finds out whether an exception came from a place that has to be seen to its end.
        self.unfinished = None
        # Names that the program defines.
        self.names = frozenset()
        # Whether StopIteration of a function may leave it as such: no statement iterates over calls in C.
        self.passes_stop = False
        # Requests that wait for their answer.
        self._open = 0
        # Where an answer is due, once for each question.
        self._due = []
        # What surrounds calls, as tests set it up; and what a reply says of it.
        self.surroundings = None
        self.released = []
        self.held_attributes = None
        self.gone = None
        self.tampering = []
        # Questions asked: tests that never use the program prove nothing about it.
        self.questions = 0

    # The conversation.

    def wait_ready(self):
        """Waits until the program is loaded; returns what went wrong, or None."""
        try:
            message = self._receive(0, "exit_while_loading")
        except SnippetGone:
            return "the program ended while loading: %s" % self.gone
        if type(message) is tuple and message[:1] == ("ready",) and type(message[-1]) is tuple:
            self.names = frozenset(name for name in message[-1] if type(name) is str)
            return None
        if type(message) is tuple and message[:1] == ("failed",) and len(message) == 3:
            self.gone = "loading failed"
            return text_of(message[2])
        self.gone = "protocol: unexpected first message"
        self._note("unexpected_message", self.gone)
        return self.gone

    def alive(self):
        """Whether the program is still there after the last statement, shown by an answer made just now."""
        if self.gone:
            return False
        number = int.from_bytes(os.urandom(7), "little")
        try:
            self.questions -= 1
            answer = self.request("ping", number)
        except BaseException:
            answer = None
        if not self.gone and (type(answer) is not int or answer != number):
            self.gone = "protocol: no answer after the last statement"
            self._note("unexpected_message", self.gone)
        return not self.gone

    def encoded(self, message):
        """One frame as bytes; with `decoded`, for a rehearsal without a program."""
        frame = bytearray()
        codec.send_frame(lambda view: frame.extend(view) or len(view), self._encoder.encode(message))
        return bytes(frame)

    def decoded(self):
        return self._decoder.decode(codec.receive_frame(self._socket.recv))

    def lookup(self, name):
        """(found, value) of a name in the program."""
        answer = self.request("get", name)
        if type(answer) is not tuple or len(answer) != 2 or type(answer[0]) is not bool:
            self._broken("unexpected_message", "protocol: malformed answer")
        found, value = answer
        if isinstance(value, mirror.MirrorType):
            self.name_class(value, name)
        return found, value

    def request(self, operation, *arguments):
        """Asks one question; an exception of the program is raised here."""
        try:
            result = self.advance(operation, *arguments)
            if isinstance(type(result), mirror.MirrorType):
                # What the program hands out is no longer the test's own making.
                result._rlox_mode &= ~mirror.OWN
            return result
        except StopIteration as error:
            if self.passes_stop:
                raise
            # Only `next` may end an iteration of the test, as in a generator.
            raise RuntimeError("the program raised StopIteration") from error

    def advance(self, operation, *arguments):
        if self.gone:
            raise SnippetGone(self.gone)
        self.questions += 1
        if self._lengths and operation != "stage" and arguments[:1] not in UNCHANGING:
            for each in arguments[:2]:
                if isinstance(type(each), mirror.MirrorType):
                    self._lengths.pop(each._rlox_number, None)
        address = self._address_here()
        if self.surroundings is not None and operation != "stage":
            self.surroundings.send(self)
        released, self.released = self.released, []
        if self._open == 0 and self._is_readable(0):
            self._unasked()
        self._open += 1
        self._due.append(address)
        try:
            try:
                self._send((operation, arguments, tuple(released), address))
            except BaseException:
                if address in self._due:
                    self._due.remove(address)
                raise
            return self._answer(address)
        finally:
            self._open -= 1

    def allow_threads(self):
        """Lets further threads of the tests ask while the program answers this one."""
        try:
            self.request("threads")
        except BaseException:
            # It cannot be asked again, and no statement is there yet that could fail.
            self._broken("unexpected_message", "protocol: malformed answer")
        self._threads = 1

    def _address_here(self):
        """Where this thread's requests are answered: by the program's thread that asked, or by one of its own."""
        address = getattr(self._here, "address", None)
        if address is None:
            address = 0
            if self._threads and _thread.get_ident() != self._main:
                self._threads += 1
                address = -self._threads
                self._send((address, -1))
            self._here.address = address
        return address

    def call(self, target, args, kwargs):
        return self.request("call", target, args, tuple(kwargs.items()))

    def construct(self, cls, args, kwargs):
        result = self.request("call", cls, args, tuple(kwargs.items()))
        if isinstance(result, mirror.Mirror) and cls.__dict__.get("_rlox_named"):
            result._rlox_mode |= mirror.OWN
            if isinstance(result, mirror.MirrorObject):
                self._made[result._rlox_number] = (cls, args, kwargs)
        return result

    def subclass(self, name, bases, namespace, named):
        """A class that a test derives from one of the program's: it is made there, its functions stay here."""
        cell = namespace.pop("__classcell__", None)
        body = tuple(
            (key, mirror.member(value)) for key, value in namespace.items() if key not in mirror.CLASS_NAMES
        )
        for base in bases:
            if isinstance(base, mirror.MirrorType) and not base.__dict__.get("_rlox_members"):
                self._open_members(base)
        made = self.request("subclass", name, bases, body, tuple(named.items()))
        if not isinstance(made, mirror.MirrorType):
            self._broken("lying_type", "protocol: a class that is none")
        for key, value in namespace.items():
            if key not in mirror.CLASS_NAMES and not key.startswith("__"):
                own = isinstance(value, types.FunctionType)
                type.__setattr__(made, key, value if own else mirror.Inherited(made, key))
        made._rlox_named = True
        if cell is not None:
            cell.cell_contents = made
        return made

    def _open_members(self, base):
        names = self.request("members", base)
        if type(names) is not tuple:
            self._broken("unexpected_message", "protocol: malformed answer")
        for name in names:
            if type(name) is str and name not in base.__dict__ and not name.startswith("_rlox"):
                type.__setattr__(base, name, mirror.Inherited(base, name))
        base._rlox_members = True

    def is_mirrored(self, error):
        """Whether an exception came from the program."""
        return id(error) in self._error_numbers

    def known(self, number):
        """A mirror by its number; an object that is gone there is an error there."""
        known = self._mirrors.get(number)
        return self._keep(mirror.MirrorObject, number) if known is None else known

    def name_class(self, cls, name):
        """A test that names a class as one, `Money`, wants objects; one that names `add` wants a function."""
        if name.lstrip("_")[:1].isupper():
            cls._rlox_named = True

    def leave(self, manager, *error):
        """The program's `__exit__`; it may swallow the test's exception, but none that leaves a check undone."""
        if error and isinstance(error[1], SnippetGone):
            return False
        swallowed = self.request("special", "exit", manager, *error[:2], None)
        return swallowed is True and self.may_swallow(error)

    def may_swallow(self, error):
        if not error or error[1] is None:
            return True
        if isinstance(error[1], (AssertionError, SnippetGone)):
            return False
        return self.unfinished is None or not self.unfinished(error[1].__traceback__)

    def refuse(self, reason):
        """The statement does not pass any more, whatever it does with the exception."""
        self.refusals.append(reason)
        raise mirror.Refused(reason)

    def hold(self):
        """Keeps aside what the next calls do to the test's own arguments."""
        self._containers.hold()
        self.held_attributes = []

    def settle(self, apply):
        attributes, self.held_attributes = self.held_attributes, None
        self._containers.settle(apply)
        if apply:
            for value, name, content in attributes:
                setattr(value, name, content)

    # Comparison of two objects of the program.

    def equal(self, one, other):
        equal, mine, theirs = self._compare(one, other)
        if not equal:
            return False
        if one._rlox_number == other._rlox_number:
            return True
        if type(one)._rlox_enum and type(other)._rlox_enum:
            # Members are equal if they are the same, whatever they say.
            return False
        if mine and type(one) is type(other) and same(mine, theirs):
            return True
        if not (one._rlox_mode | other._rlox_mode) & mirror.OWN:
            # Two results that consist of different things: nothing but their own word says that they are equal.
            return False
        # They differ and are called equal: so be it, unless everything is, or not each time.
        questions = [lambda: self._compare(one, other)[0]] * REPEATS
        strange = [lambda: self.request("stranger", one) is True, lambda: self.request("stranger", other) is True]
        controls = [*self._controls(one, other), *self._controls(other, one)]
        answers = self._in_any_order([*questions, *strange, *controls])
        if not all(answers[:REPEATS]):
            self.lied("equality: not the same answer each time")
        if any(answers[REPEATS : REPEATS + 2]):
            self.lied("equality: equal to an object that it cannot know")
        if controls and all(answers[REPEATS + 2 :]):
            self.lied("equality: equal whatever the other was made of")
        return True

    def _compare(self, one, other):
        answer = self.request("compare", one, other)
        if type(answer) is not tuple or len(answer) != 3:
            self._broken("unexpected_message", "protocol: malformed answer")
        return answer[0] is True, answer[1], answer[2]

    def _controls(self, one, other):
        """Questions whether `one` also equals objects made like `other` from different arguments."""
        if other._rlox_number not in self._made:
            return []
        cls, args, kwargs = self._made[other._rlox_number]
        made = []
        for changed in perturbed(args)[:PROBES]:
            try:
                made.append(self.request("call", cls, changed, tuple(kwargs.items())))
            except Exception:
                continue
        return [lambda each=each: self._compare(one, each)[0] for each in made]

    def _in_any_order(self, questions):
        order = list(range(len(questions)))
        order.sort(key=lambda place: os.urandom(8))
        answers = [None] * len(questions)
        for place in order:
            try:
                answers[place] = questions[place]()
            except Exception:
                answers[place] = False
        return answers

    def exited(self, how):
        """The program asked to end inside a call, and no test expected that."""
        if not self.gone:
            self._note("exit_in_call", how)
            self.gone = "it called for its own end: %s" % how

    def claim_length(self, value, length, how):
        """Compares the length of a result with the number of its items, as long as nothing else happens to it."""
        claims = self._lengths.setdefault(value._rlox_number, {})
        claims[how] = length
        if len(claims) == 2 and claims["len"] != claims["items"]:
            self.lied("length: it has not as many items as it says")

    def lied(self, detail):
        self._note("lying_type", detail)
        self.refuse(detail)

    # Coroutines of the program.

    def coroutine(self, awaitable):
        made = self._drive(awaitable)
        self._coroutines[made] = awaitable
        return made

    async def _drive(self, awaitable):
        import asyncio

        task = self.request("spawn", awaitable)
        try:
            await asyncio.sleep(0)
            while True:
                done, result = self.advance("drive", task, 0.01)
                if done is True:
                    return result
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.request("cancel", task)
            raise

    # The wire.

    def _address(self, message):
        """Which of the waiting requests a message belongs to."""
        if type(message) is not tuple or not message or type(message[0]) is not str:
            self._broken("unexpected_message", "protocol: message is no tuple")
        if message[0] == "ask" and len(message) == 6:
            if message[5] is None:
                # Of a thread of the program's own: whoever asks first answers it.
                return 0
            if type(message[5]) is int and message[5] in self._due:
                return message[5]
        elif message[0] in ("ready", "failed"):
            return 0
        elif message[0] in ("value", "raised") and len(message) == 4 and type(message[2]) is tuple:
            # An answer that nobody waits for would be kept for whoever asks next.
            if type(message[3]) is int and message[3] in self._due:
                self._due.remove(message[3])
                return message[3]
            self._broken("unasked_frame", "protocol: an answer without its question")
        self._broken("unexpected_message", "protocol: unknown message")

    def _answer(self, address):
        while True:
            answer = self._receive(address)
            if answer[0] == "ask":
                if answer[5] is None:
                    self._asked_aside(answer)
                else:
                    self._asked(*answer[1:5])
                continue
            if answer[0] in ("value", "raised"):
                break
            self._broken("unexpected_message", "protocol: no answer")
        for change in answer[2]:
            self._change(change)
        if answer[0] == "value":
            return answer[1]
        if not issubclass(type(answer[1]), BaseException):
            self._broken("lying_type", "protocol: raised something that is no exception")
        raise answer[1]

    def _asked(self, operation, args, pairs, number):
        if type(operation) is not str or type(args) is not tuple or type(pairs) is not tuple:
            self._broken("unexpected_message", "protocol: malformed question")
        if type(number) is not int or number <= 0:
            self._broken("unexpected_message", "protocol: malformed question")
        before = getattr(self._here, "address", None)
        self._here.address = number
        try:
            reply = ("returned", self._handed.perform(operation, args, dict(pairs)), number)
        except SnippetGone:
            raise
        except Exception as error:
            if isinstance(error, AssertionError) and id(error) not in self._error_numbers:
                # A check of the test failed; the program may swallow that, the statement fails all the same.
                self.refusals.append("a check in a function of the test failed: %s" % error)
            reply = ("raised", error, number)
        finally:
            self._here.address = before
        try:
            self._send(reply)
        except (TypeError, codec.WireError) as error:
            self._send(("raised", TypeError(str(error)), number))

    def _is_readable(self, seconds):
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _asked_aside(self, message):
        """A question of a thread of the program's own: it may wait for what this thread does next."""
        import threading

        thread = threading.Thread(target=self._asked, args=message[1:5], daemon=True)
        thread.start()
        return thread

    def serve_pending(self, seconds):
        """Answers the questions of the program's own threads for a while, as the tests wait for them."""
        deadline = time.monotonic() + seconds
        while self._open == 0 and not self.gone:
            left = deadline - time.monotonic()
            if not self._is_readable(max(0.0, left)):
                break
            self._unasked()
        return max(0.0, deadline - time.monotonic())

    def _change(self, change):
        if type(change) is not tuple or len(change) != 3:
            self._broken("unexpected_message", "protocol: malformed change")
        kind, key, value = change
        if kind == "stored" and type(key) is int and type(value) in shared.KINDS:
            known = self._values.get(key)
            if known is not None and not isinstance(known, type(value)):
                self._broken("unexpected_message", "protocol: malformed change")
            shared.merge(known, value)
        elif kind in ("printed", "file", "warned", "logged") and self.surroundings is not None:
            self.surroundings.changed(kind, key, value)
        else:
            self._broken("unexpected_message", "protocol: unknown change")

    def _send(self, message):
        try:
            self._channel.send(message)
        except codec.Closed:
            self._broken("exit_in_call", "its process ended")
        except codec.WireError as error:
            raise TypeError("a value of the test cannot be handed to the program: %s" % error) from None

    def _receive(self, address, ended="exit_in_call"):
        try:
            return self._channel.receive(address)
        except codec.Closed:
            self._broken(ended, "its process ended")
        except codec.WireError as error:
            self._broken("malformed_frame", "protocol: %s" % error)

    def _unasked(self):
        """Something came although nothing is asked: a question, the end, or an answer before its question."""
        message = self._receive(0, "exit_between_calls")
        if message[0] != "ask" or message[5] is not None:
            self._broken("unasked_frame", "protocol: an answer before its question")
        self._asked_aside(message).join(ASIDE_SECONDS)

    def _broken(self, kind, reason):
        if not self.gone:
            self._note(kind, reason)
        self.gone = self.gone or reason
        # Nothing more is read, by no thread that still waits.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        raise SnippetGone(self.gone)

    def _note(self, kind, detail):
        if len(self.tampering) < 20:
            self.tampering.append((kind, detail[:200]))

    # Handles.

    def _handle(self, value):
        kind = type(value)
        if isinstance(value, mirror.MirrorValue) and isinstance(value, (str, bytes)) and not is_kept(value):
            # As text it goes back, without what the program may have attached to it.
            return codec.storage(value)
        if isinstance(kind, mirror.MirrorType):
            return codec.Handle(codec.PROGRAM, value._rlox_number)
        if isinstance(value, mirror.MirrorType):
            return codec.Handle(codec.PROGRAM, value.__dict__["_rlox_class"])
        if id(value) in self._error_numbers and isinstance(value, BaseException):
            return codec.Handle(codec.PROGRAM, self._error_numbers[id(value)])
        if kind is _COROUTINE and value in self._coroutines:
            return codec.Handle(codec.PROGRAM, self._coroutines[value]._rlox_number)
        return self._handed.handle(value)

    def _of_program(self, number, kind, *details):
        if type(number) is not int or type(kind) is not str:
            raise codec.WireError("malformed reference")
        if kind == "class":
            return self._class(number, *details)
        if kind == "module":
            return library_module(details[0]) or UnavailableModule(details[0])
        known = self._mirrors.get(number, self._errors.get(number))
        if known is not None:
            return known
        if kind == "function":
            module, name = details
            own = library_function(module, name)
            if own is not None:
                return own
            return self._keep(mirror.MirrorFunction, number)
        if kind == "generator":
            return self._keep(mirror.MirrorGenerator, number)
        if kind == "async_generator":
            return self._keep(self._async_generator(), number)
        if kind == "coroutine":
            return self.coroutine(self._keep(mirror.MirrorObject, number))
        if kind == "exception":
            return self._exception(number, *details)
        if kind == "object":
            (cls,) = details
            if not isinstance(cls, mirror.MirrorType):
                cls = mirror.MirrorObject
            if not issubclass(cls, mirror.MirrorObject):
                raise codec.WireError("an instance of %s without its value" % cls.__name__)
            return self._keep(cls, number)
        raise codec.WireError("unknown kind of reference")

    def _keep(self, cls, number, mode=0):
        made = object.__new__(self._bound(cls))
        object.__setattr__(made, "_rlox_number", number)
        object.__setattr__(made, "_rlox_mode", mode)
        if number in self.released:
            self.released.remove(number)
        self._mirrors[number] = made
        return made

    def derived(self, result):
        made = object.__new__(type(result))
        object.__setattr__(made, "_rlox_number", result._rlox_number)
        object.__setattr__(made, "_rlox_mode", mirror.DERIVED)
        object.__setattr__(made, "_rlox_kept", result)
        return made

    def _bound(self, cls):
        """The class with this session: one process has one session."""
        if "_rlox_session" not in mirror.Mirror.__dict__:
            type.__setattr__(mirror.Mirror, "_rlox_session", self)
        return cls

    def _async_generator(self):
        cls = self._classes.get(0)
        if cls is None:
            body = mirror.object_body(("__anext__",), False)
            body["__aiter__"] = lambda this: this
            body["asend"] = lambda this, value: self.coroutine(self.request("getattr", this, "asend")(value))
            body["aclose"] = lambda this: self.coroutine(self.request("getattr", this, "aclose")())
            body["__class__"] = property(lambda this: types.AsyncGeneratorType)
            cls = self._classes[0] = mirror.make_class("async_generator", (mirror.MirrorObject,), body)
        return cls

    def _stored(self, number, cls, storage):
        if type(number) is not int:
            raise codec.WireError("malformed reference")
        base = type(storage)
        if not isinstance(cls, mirror.MirrorType) or base not in cls.__mro__:
            # What it claims to be is not what it consists of: it is plain data.
            if isinstance(cls, type) and issubclass(cls, base):
                return storage
            raise codec.WireError("a value that is not of its class")
        known = self._values.get(number)
        if known is not None and type(known) is cls:
            shared.merge(known, storage)
            return known
        self._bound(cls)
        if base in (list, set, dict, bytearray):
            made = base.__new__(cls)
            base.__init__(made, storage)
        else:
            made = base.__new__(cls, storage)
        object.__setattr__(made, "_rlox_number", number)
        object.__setattr__(made, "_rlox_mode", 0)
        self._values[number] = made
        return made

    def _exception(self, number, cls, args, text, state, chain):
        if type(args) is not tuple or type(state) is not dict or type(text) is not str or type(chain) is not tuple:
            raise codec.WireError("malformed exception")
        if not isinstance(cls, type) or not issubclass(cls, BaseException):
            raise codec.WireError("an exception of a class that is none")
        if issubclass(cls, mirror.MirrorError):
            self._bound(cls)
            made = builtin_error(cls).__new__(cls, *(args if issubclass(cls, BaseExceptionGroup) else ()))
            object.__setattr__(made, "_rlox_number", number)
            object.__setattr__(made, "_rlox_mode", 0)
            object.__setattr__(made, "_rlox_text", text)
            BaseException.args.__set__(made, args)
        else:
            made = make(cls, args)
        for name, value in state.items():
            if type(name) is str and not name.startswith("_"):
                try:
                    object.__setattr__(made, name, value)
                except (AttributeError, TypeError):
                    continue
        if number in self._errors:
            # One came while the other was made: it would be forgotten here, but not its identity.
            raise codec.WireError("two exceptions of one number")
        self._errors[number] = made
        self._error_numbers[id(made)] = number
        if len(self._errors) > MAX_ERRORS:
            oldest = next(iter(self._errors))
            self._error_numbers.pop(id(self._errors.pop(oldest)), None)
            self.released.append(oldest)
        cause, context, suppressed, notes = chain
        if isinstance(cause, BaseException):
            BaseException.__cause__.__set__(made, cause)
        if isinstance(context, BaseException):
            BaseException.__context__.__set__(made, context)
        BaseException.__suppress_context__.__set__(made, suppressed is True)
        if type(notes) is tuple:
            object.__setattr__(made, "__notes__", list(notes))
        return made

    def _class(self, number, *details):
        if number in self._classes:
            return self._classes[number]
        if len(details) != 6:
            raise codec.WireError("a class that was never described")
        module, name, doc, bases, specials, flags = details
        if type(module) is not str or type(name) is not str or type(bases) is not tuple or type(flags) is not dict:
            raise codec.WireError("malformed class")
        cls = library_class(module, name)
        if cls is None:
            cls = self._mirror_class(number, module, name, doc, bases, specials, flags)
        self._classes[number] = cls
        return cls

    def _mirror_class(self, number, module, name, doc, bases, specials, flags):
        parents = [base for base in bases if isinstance(base, type)]
        roots = [base for parent in parents for base in parent.__mro__]
        value = next((base for base in roots if base in mirror.VALUES), None)
        error = next((base for base in roots if isinstance(base, type) and issubclass(base, BaseException)), None)
        specials = tuple(each for each in specials if type(each) is str)
        if value is not None:
            kind, root = mirror.MirrorValue, value
            body = mirror.value_body(value, specials, set(flags.get("overrides", ())))
        elif error is not None:
            kind, root, body = mirror.MirrorError, builtin_error(error), mirror.error_body(specials)
        else:
            kind, root = mirror.MirrorObject, None
            body = mirror.object_body(specials, flags.get("unhashable") is True)
        short = name.rpartition(".")[2][:80] or "Object"
        body.update(__module__=module[:80], __qualname__=name[:200], __doc__=doc if type(doc) is str else None)
        body.update(_rlox_class=number, _rlox_session=self, _rlox_meta=tuple(flags.get("meta", ())))
        stands_for = library_type(module, name)
        if stands_for is not None and kind is mirror.MirrorObject:
            body["__class__"] = property(lambda this: stands_for)
        inherited = {each for parent in parents for each in getattr(parent, "_rlox_specials", ())}
        body["_rlox_specials"] = frozenset(specials) | inherited
        body["_rlox_enum"] = flags.get("enum") is True
        # Not of exceptions: `suppress` would ask the program whether to swallow a failed check.
        body["_rlox_instancecheck"] = flags.get("instancecheck") is True and error is None
        if type(flags.get("fields")) is list:
            body["__dataclass_fields__"] = {
                each: data_field(each) for each in flags["fields"] if type(each) is str
            }
        made = self._derive(short, parents, kind, root, body)
        for abstract in flags.get("abstract", ()):
            if abstract in ABSTRACT and not issubclass(getattr(collections.abc, abstract), made):
                getattr(collections.abc, abstract).register(made)
        return made

    def _derive(self, name, parents, kind, root, body):
        """A class with the parents' mirrors as bases, or, where Python cannot lay that out, without them."""
        mirrored = [parent for parent in parents if issubclass(parent, kind)]
        others = [parent for parent in parents if root is not None and issubclass(parent, root)]
        others = [parent for parent in others if parent not in mirrored]
        simple = [kind] if root is None else [kind, root]
        for bases in ([*(mirrored or [kind]), *others], [*(mirrored or [kind]), *simple[1:]], simple):
            # A class must not list its own ancestors before itself.
            try:
                made = mirror.make_class(name, tuple(dict.fromkeys(bases)), dict(body))
            except TypeError:
                continue
            if root is None or issubclass(made, root):
                return made
        raise codec.WireError("a class that cannot be")


ABSTRACT = frozenset(
    "Container Iterable Iterator Sequence MutableSequence Mapping MutableMapping Set MutableSet Callable".split()
)


async def _nothing():
    pass


_sample = _nothing()
_COROUTINE = type(_sample)
_sample.close()


def is_kept(value):
    """Text of a class of the program that goes back as the object it is."""
    return value._rlox_mode & mirror.OWN or type(value)._rlox_enum


def text_of(value):
    return value if type(value) is str else "?"


def same(mine, theirs):
    """Equality of what two objects consist of, key by key."""
    return type(mine) is dict and type(theirs) is dict and mine == theirs


def data_field(name):
    field = dataclasses.field()
    field.name = name
    field._field_type = dataclasses._FIELD
    return field


def perturbed(args):
    """The arguments with one of them changed, for each one that has an obvious neighbour."""
    found = []
    for place, value in enumerate(args):
        kind = type(value)
        if kind is int or kind is float:
            other = value + 1
        elif kind is str:
            other = value + "~"
        elif kind is bool:
            other = not value
        elif kind is list and value and type(value[0]) in (int, float):
            other = [value[0] + 1, *value[1:]]
        elif kind is tuple and value and type(value[0]) in (int, float):
            other = (value[0] + 1, *value[1:])
        else:
            continue
        found.append((*args[:place], other, *args[place + 1 :]))
    return found


def make(cls, args):
    """An exception of the library; its constructor may want more than `args`."""
    try:
        made = cls(*args)
    except Exception:
        made = None
    if type(made) is not cls or made.args != args:
        try:
            made = cls.__new__(cls, *args)
            BaseException.args.__set__(made, args)
        except Exception:
            made = Exception(*args)
    return made
