"""Does once, in a launcher, what every program's container does first, with a harmless program of our own.

Python fills caches in its code and its types as it runs. Done here, before the copies are made, the pages that
hold them are shared; done in each copy, every one of them is copied. The grader's side of the conversation was
written down before it begins: nobody else is there to hold it.
"""

import builtins
import os
import sys

import driver
import server

import codec
import shared

PROGRAM = b"""
import math
from typing import List

def total(*values):
    return sum(values)

def listed(items: List[int], value=None):
    found = {}
    for index, item in enumerate(items):
        found[item] = found.get(item, 0) + index
    return sorted(found) + [value for _ in range(2) if value is not None]

def failing(text):
    raise ValueError("%s: %r" % (text, len(text)))

class Box:
    def __init__(self, content):
        self.content = content
    def doubled(self):
        return Box([*self.content, *self.content])
"""
# After so many runs the interpreter has specialised its code.
RUNS = 12
# Numbers that the program's objects get, in the order in which they first cross.
TOTAL, LISTED, FAILING = 1, 2, 3


def requests():
    """What a grader asks, in the order in which the numbers above come about."""
    for name in ("total", "listed", "failing"):
        yield "get", (name,)
    for number, arguments in (
        (TOTAL, (1, 2)),
        (TOTAL, (1.5, 2, True)),
        (LISTED, ([3, 1, 2],)),
        (LISTED, (["b", "a"], "c")),
        (LISTED, ({4: [1, (2, None)]},)),
        (FAILING, ("x",)),
    ):
        yield "call", (codec.Handle(codec.PROGRAM, number), arguments, ())
    yield "get", ("absent",)
    yield "get", ("Box",)
    yield "ping", (2**40,)


def written_down():
    """All requests as frames."""
    encoder = codec.Encoder(lambda value: value, shared.Shared(2))
    frames = bytearray()
    for operation, arguments in requests():
        data = encoder.encode((operation, arguments, (), 0))
        codec.send_frame(lambda view: frames.extend(view) or len(view), data)
    return bytes(frames)


def rehearse():
    """Leaves nothing behind but what the interpreter remembers."""
    modules, arguments = set(sys.modules), sys.argv
    names = {name: builtins.__dict__.get(name) for name in ("exit", "quit")}
    frames = written_down()
    try:
        for _ in range(RUNS):
            ours, theirs = asked(frames)
            converse(theirs.fileno())
            theirs.close()
            check(ours)
            ours.close()
    finally:
        sys.argv = arguments
        for name, value in names.items():
            if value is None:
                builtins.__dict__.pop(name, None)
            else:
                builtins.__dict__[name] = value
        for name in set(sys.modules) - modules:
            del sys.modules[name]


def asked(frames):
    """A channel on which everything has been asked already."""
    import _socket

    ours, theirs = _socket.socketpair()
    ours.sendall(frames)
    ours.shutdown(_socket.SHUT_WR)
    return ours, theirs


def converse(channel):
    source = os.memfd_create("rehearsal")
    os.write(source, PROGRAM)
    os.lseek(source, 0, os.SEEK_SET)
    namespace = driver.load(driver.read_source(source), "solution")
    server.Server(channel).serve(namespace)


def check(channel):
    """Counts the answers: a conversation that ended early rehearses nothing."""
    decoder = codec.Decoder({tag: lambda *parts: parts for tag in (codec.PROGRAM, codec.STORED)}, shared.Shared(2))
    words = []
    try:
        while True:
            words.append(decoder.decode(codec.receive_frame(channel.recv))[0])
    except codec.Closed:
        pass
    expected = ["ready"] + ["raised" if at == 8 else "value" for at, _ in enumerate(requests())]
    if words != expected:
        raise AssertionError("the rehearsal went otherwise: %s" % words)
