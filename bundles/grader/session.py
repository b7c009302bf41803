"""One conversation with one program: questions go out, claims come back, and everything unexpected ends it."""

import _thread
import contextlib
import os
import select
import socket
import time
import types

import comparing
import mirror
from handed import Handed
from objects import Objects

import codec
import shared
from channel import Channel

# Questions after which a result is what it was before.
UNCHANGING = (("len",), ("iter",), ("next",), ("getitem",))
# Threads of this process at once, of the tests and for questions of threads of the program.
MOST_ASIDE = 48
# How long a test waits for a callback that a thread of the program makes by itself.
ASIDE_SECONDS = 0.1


class SnippetGone(BaseException):
    """The program's process ended or broke the protocol. Not an Exception: tests must not swallow it."""


class Session:
    """The grader's end of the channel."""

    def __init__(self, channel):
        self._socket = channel
        self._here = _thread._local()
        self._main = _thread.get_ident()
        self._threads = 0
        self._objects = Objects(self)
        self._made = {}
        # What results said of their length, and how many items they had.
        self._lengths = {}
        self.handed = Handed(self)
        containers = shared.Shared(2)
        self._encoder = codec.Encoder(self._objects.handle, containers)
        self._decoder = codec.Decoder(
            {
                codec.PROGRAM: self._objects.of_program,
                codec.STORED: self._objects.stored,
                codec.TESTS: self.handed.resolve,
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

    def mirrors(self):
        """Objects of the program that something still refers to."""
        return self._objects.mirrors()

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
            self.broken("unexpected_message", "protocol: malformed answer")
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
            self.broken("unexpected_message", "protocol: malformed answer")
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
            self.broken("lying_type", "protocol: a class that is none")
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
            self.broken("unexpected_message", "protocol: malformed answer")
        for name in names:
            if type(name) is str and name not in base.__dict__ and not name.startswith("_rlox"):
                type.__setattr__(base, name, mirror.Inherited(base, name))
        base._rlox_members = True

    def is_mirrored(self, error):
        """Whether an exception came from the program."""
        return self._objects.is_error(error)

    def known(self, number):
        """A mirror by its number; an object that is gone there is an error there."""
        return self._objects.known(number)

    def derived(self, result):
        return self._objects.derived(result)

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

    def equal(self, one, other):
        return comparing.equal(self, one, other)

    def made_of(self, value):
        """The constructor call of the tests that made an object, or None."""
        return self._made.get(value._rlox_number)

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
        self._objects.remember_coroutine(made, awaitable)
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
            self.broken("unexpected_message", "protocol: message is no tuple")
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
            self.broken("unasked_frame", "protocol: an answer without its question")
        self.broken("unexpected_message", "protocol: unknown message")

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
            self.broken("unexpected_message", "protocol: no answer")
        for change in answer[2]:
            self._change(change)
        if answer[0] == "value":
            return answer[1]
        if not issubclass(type(answer[1]), BaseException):
            self.broken("lying_type", "protocol: raised something that is no exception")
        raise answer[1]

    def _asked(self, operation, args, pairs, number):
        if type(operation) is not str or type(args) is not tuple or type(pairs) is not tuple:
            self.broken("unexpected_message", "protocol: malformed question")
        if type(number) is not int or number <= 0:
            self.broken("unexpected_message", "protocol: malformed question")
        before = getattr(self._here, "address", None)
        self._here.address = number
        try:
            reply = ("returned", self.handed.perform(operation, args, dict(pairs)), number)
        except SnippetGone:
            raise
        except Exception as error:
            if isinstance(error, AssertionError) and not self._objects.is_error(error):
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

        if _thread._count() >= MOST_ASIDE:
            self.broken("unexpected_message", "protocol: too many questions at once")
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
            self.broken("unexpected_message", "protocol: malformed change")
        kind, key, value = change
        if kind == "stored" and type(key) is int and type(value) in shared.KINDS:
            known = self._objects.value(key)
            if known is not None and not isinstance(known, type(value)):
                self.broken("unexpected_message", "protocol: malformed change")
            shared.merge(known, value)
        elif kind in ("printed", "file", "warned", "logged") and self.surroundings is not None:
            self.surroundings.changed(kind, key, value)
        else:
            self.broken("unexpected_message", "protocol: unknown change")

    def _send(self, message):
        try:
            self._channel.send(message)
        except codec.Closed:
            self.broken("exit_in_call", "its process ended")
        except codec.WireError as error:
            raise TypeError("a value of the test cannot be handed to the program: %s" % error) from None

    def _receive(self, address, ended="exit_in_call"):
        try:
            return self._channel.receive(address)
        except codec.Closed:
            self.broken(ended, "its process ended")
        except codec.WireError as error:
            self.broken("malformed_frame", "protocol: %s" % error)

    def _unasked(self):
        """Something came although nothing is asked: a question, the end, or an answer before its question."""
        message = self._receive(0, "exit_between_calls")
        if message[0] != "ask" or message[5] is not None:
            self.broken("unasked_frame", "protocol: an answer before its question")
        self._asked_aside(message).join(ASIDE_SECONDS)

    def broken(self, kind, reason):
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


def text_of(value):
    return value if type(value) is str else "?"
