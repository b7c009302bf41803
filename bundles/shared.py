"""Lists, dicts, sets and bytearrays that both sides hold: each keeps its own copy, and both copies stay alike.

A container that crosses gets a number. Before a side sends anything, it tells what it changed in the containers
that the other side still has, and which of them nobody on its own side refers to any more. Only one side runs
at a time, so there is nothing to reconcile. Large containers cross by value alone.
"""

import sys

# A container of more bytes on the wire, or beyond so many, crosses by value and is forgotten.
MAX_BYTES = 64 << 10
MAX_ENTRIES = 500
# References to a container that come from here: the entry, the loop's variable and the call that counts.
OWN_REFERENCES = 3

KINDS = (list, dict, set, bytearray)
# Containers of the standard library that are shared as well; named, so that they need not be imported.
NAMED_KINDS = frozenset((("collections", name) for name in ("deque", "Counter", "OrderedDict", "defaultdict"))) | {
    ("array", "array")
}


def is_shared(kind):
    if kind in KINDS:
        return True
    name = kind.__module__, kind.__name__
    # The name alone proves nothing: anybody may call a class `deque`.
    return name in NAMED_KINDS and getattr(sys.modules.get(name[0]), name[1], None) is kind


class Shared:
    """The containers that have crossed, by number; each side numbers its own, odd or even."""

    def __init__(self, first):
        self._next = first
        self._entries = {}
        self._numbers = {}
        self._leaving = frozenset()
        # Held back, until a test's statement has read what it passed: number -> content.
        self.held = None
        self._withdrawn = []
        self._passed = []
        # Forgotten by the other side while the message that brought them was still being read.
        self._gone = set()

    def find(self, number):
        """The container of a number, or None."""
        entry = self._entries.get(number)
        return None if entry is None else entry[0]

    def number(self, value):
        number = self._numbers.get(id(value))
        if number is not None and self.held is not None:
            self._passed.append(number)
        return number

    def is_known(self, number, data):
        """Whether the other side has exactly this content."""
        return self._entries[number][1] == data

    def enter(self, value, data):
        """Begins to share a container of this side; its number, or None where there are too many."""
        if len(self._entries) >= MAX_ENTRIES:
            return None
        number = self._next
        self._next += 2
        self._keep(number, value, data)
        if self.held is not None:
            self._passed.append(number)
        return number

    def accept(self, value, data, number):
        """Begins to share a container of the other side; whether the number can be one of its."""
        if number <= 0 or self.own(number) or number in self._entries or len(self._entries) >= 2 * MAX_ENTRIES:
            return False
        if number not in self._gone:
            self._keep(number, value, data)
        return True

    def _keep(self, number, value, data):
        self._entries[number] = [value, data]
        self._numbers[id(value)] = number

    def remember(self, number, data):
        self._entries[number][1] = data

    def changes(self, encode):
        """(numbers that nobody here refers to, [(number, new content), …]) since the last message."""
        dropped = list(self._withdrawn)
        updates = []
        for number, entry in list(self._entries.items()):
            if number in self._leaving or (self.held and number in self.held):
                continue
            value, known = entry
            if sys.getrefcount(value) <= OWN_REFERENCES:
                dropped.append(number)
            data = encode(value, known)
            if data is not None:
                updates.append((number, data))
        return dropped, updates

    def own(self, number):
        """Whether this side brought the container in."""
        return number % 2 == self._next % 2

    def hold(self):
        """From now on what the other side does to containers of this side is kept aside."""
        self.held = {}
        self._passed = []

    def settle(self, apply):
        """Does what was kept aside, or gives those containers up."""
        held, self.held = self.held, None
        if apply:
            for number, (content, data) in held.items():
                entry = self._entries.get(number)
                if entry is not None:
                    merge(entry[0], content)
                    entry[1] = data
            return
        for number in {*self._passed, *held}:
            if number in self._entries and self.own(number):
                self._withdrawn.append(number)
                self.forget((number,))

    def sent(self, dropped, updates):
        for number, data in updates:
            self._entries[number][1] = data
        self.forget(dropped)
        self._withdrawn.clear()

    def leave(self, numbers):
        """The other side has forgotten these, once it has told their last content."""
        self._leaving = frozenset(numbers)

    def forget(self, numbers):
        for number in numbers:
            entry = self._entries.pop(number, None)
            if entry is None:
                self._gone.add(number)
            else:
                self._numbers.pop(id(entry[0]), None)


def merge(mine, theirs, begun=None):
    """Makes a container what the other side made of its copy, keeping the identity of what is inside."""
    if mine is theirs or mine is None:
        return
    # A container may be inside itself.
    begun = set() if begun is None else begun
    if (id(mine), id(theirs)) in begun:
        return
    begun.add((id(mine), id(theirs)))
    if isinstance(mine, list) and type(theirs) is list:
        kept = list.__getitem__(mine, slice(None))
        list.__setitem__(mine, slice(None), [_kept(kept, place, new, begun) for place, new in enumerate(theirs)])
    elif isinstance(mine, dict) and isinstance(theirs, dict):
        own = dict if type(theirs) is dict else type(theirs)
        kept = dict(dict.items(mine))
        own.clear(mine)
        for key, new in theirs.items():
            own.__setitem__(mine, key, _merged(kept.get(key), new, begun))
    elif isinstance(mine, set) and type(theirs) is set:
        set.clear(mine)
        set.update(mine, theirs)
    elif isinstance(mine, bytearray) and type(theirs) is bytearray:
        bytearray.__setitem__(mine, slice(None), theirs)
    elif type(mine) is type(theirs) and is_shared(type(mine)):
        # A deque or an array.
        if hasattr(mine, "clear"):
            mine.clear()
            mine.extend(theirs)
        else:
            mine[:] = theirs


def _kept(kept, place, new, begun):
    return _merged(kept[place], new, begun) if place < len(kept) else new


def _merged(old, new, begun):
    """`old` with the content of `new` where both are containers of one kind, else `new`."""
    if type(old) is type(new) and is_shared(type(old)):
        merge(old, new, begun)
        return old
    return new
