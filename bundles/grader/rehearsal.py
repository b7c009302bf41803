"""Does once what every fork does first, with a program and statements of our own.

Python fills caches in its code as it runs, and creates what it needs only then. Done here, before the forks, the
pages that hold all this are shared; done in each fork, every one of them is copied. The program is the snippet's
side of the conversation, in a process of its own.
"""

import os
import socket

import session
import statements
import surroundings
import traces

PROGRAM = """
import math

def total(*values):
    return sum(values)

def listed(items, value=None):
    return sorted(items) + ([] if value is None else [value])

def failing(text):
    raise ValueError(text)

class Box:
    def __init__(self, content):
        self.content = content
    def doubled(self):
        return Box([*self.content, *self.content])
    def __len__(self):
        return len(self.content)
"""
TESTS = (
    "assert total(1, 2) == 3",
    "assert total(1.5, 2) == 3.5 and total() == 0",
    "import math\nassert math.isclose(total(0.1, 0.2), 0.3)",
    "assert listed([3, 1, 2]) == [1, 2, 3]",
    "assert listed(['b', 'a'], 'c') == ['a', 'b', 'c'], 'message'",
    "for case, wanted in [((1, 2), 3), ((4,), 4)]:\n    assert total(*case) == wanted",
    "try:\n    failing('x')\nexcept ValueError as error:\n    assert str(error) == 'x'\nelse:\n    assert False",
    "box = Box([1, 2])\nassert box.doubled().content == [1, 2, 1, 2] and len(box) == 2",
    "def check(candidate):\n    assert candidate([2, 1]) == [1, 2]\n    assert candidate({1: 'a'}) == [1]",
    "check(listed)",
    "assert isinstance(listed((2, 1)), list) and not listed([]) and total(True) is not None",
)
# After so many runs the interpreter has specialised its code.
RUNS = 12


def rehearse(report, send_report):
    """Runs the statements through everything that a verification goes through; leaves no trace in this process."""
    ours, theirs = socket.socketpair()
    program = os.fork()
    if program == 0:
        ours.close()
        perform(theirs)
    theirs.close()
    with ours, traces.Traces() as left:
        results = converse(ours, report, send_report)
    os.waitpid(program, 0)
    failed = [message for passed, message in results if not passed]
    if not left.gone:
        failed.append("something still refers to the program")
    if failed:
        raise AssertionError("the rehearsal failed: %s" % failed)


def converse(channel, report, send_report):
    """The results of the last run; of the conversation nothing is left when this returns."""
    talk = session.Session(channel)
    talk.wait_ready()
    for _ in range(RUNS):
        surroundings.Surroundings("\n".join(TESTS))
        results = statements.run(talk, list(TESTS))
        reading, writing = os.pipe()
        send_report(writing, b"key", report(talk, True, talk.alive(), results))
        os.close(reading)
    return results


def perform(channel):
    """The program's side, as in a snippet's container; does not return."""
    try:
        import server

        namespace = {"__name__": "solution"}
        exec(PROGRAM, namespace)
        server.Server(channel.fileno()).serve(namespace)
    finally:
        os._exit(0)
