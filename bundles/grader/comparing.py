"""Whether two objects of the program are equal: by its own word, and safeguards against one that is always yes."""

import os

import mirror

# Perturbations of one constructor call that a lying `__eq__` has to get wrong.
PROBES = 6
# How often a suspicious answer is asked for again, among the controls.
REPEATS = 5


def equal(session, one, other):
    """The answer; a lie that shows fails the statement."""
    answer, mine, theirs = _compare(session, one, other)
    if not answer:
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
    questions = [lambda: _compare(session, one, other)[0]] * REPEATS
    strange = [lambda each=each: session.request("stranger", each) is True for each in (one, other)]
    controls = [*_controls(session, one, other), *_controls(session, other, one)]
    answers = _in_any_order([*questions, *strange, *controls])
    if not all(answers[:REPEATS]):
        session.lied("equality: not the same answer each time")
    if any(answers[REPEATS : REPEATS + 2]):
        session.lied("equality: equal to an object that it cannot know")
    if controls and all(answers[REPEATS + 2 :]):
        session.lied("equality: equal whatever the other was made of")
    return True


def _compare(session, one, other):
    answer = session.request("compare", one, other)
    if type(answer) is not tuple or len(answer) != 3:
        session.broken("unexpected_message", "protocol: malformed answer")
    return answer[0] is True, answer[1], answer[2]


def _controls(session, one, other):
    """Questions whether `one` also equals objects made like `other` from different arguments."""
    call = session.made_of(other)
    if call is None:
        return []
    cls, args, kwargs = call
    made = []
    for changed in perturbed(args)[:PROBES]:
        try:
            made.append(session.request("call", cls, changed, tuple(kwargs.items())))
        except Exception:
            continue
    return [lambda each=each: _compare(session, one, each)[0] for each in made]


def _in_any_order(questions):
    order = list(range(len(questions)))
    order.sort(key=lambda place: os.urandom(8))
    answers = [None] * len(questions)
    for place in order:
        try:
            answers[place] = questions[place]()
        except Exception:
            answers[place] = False
    return answers


def same(mine, theirs):
    """Equality of what two objects consist of, key by key."""
    return type(mine) is dict and type(theirs) is dict and mine == theirs


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
