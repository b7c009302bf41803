"""Test statements that nobody passes who does not know a secret, and an honest program that does.

`SECRET_A`, `_B` and `_C` stand for random numbers of 100 bits. A statement is only listed if no claim of a program
about its own objects could satisfy it: `SECRET_A in f(2)` is not, since `range(2**100)` would pass.
"""

from __future__ import annotations

import random

PROGRAM = '''
import asyncio, logging, warnings
from collections import Counter, deque
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

A, B, C = SECRET_A, SECRET_B, SECRET_C

def equal(x): return A
def mirrored(x): return A
def text(x): return "SECRET_A"
def item(x): return [0, 1, 2, A]
def nested(x): return {"a": {"b": A}}
def listed(x): return [A, B]
def paired(x): return (A, B)
def keyed(x): return {"k": A}
def stored(x): return {A: B}
def as_float(x): return A / 2.0**100
def counted(x): return Counter({A: 2})
def queued(x): return deque([A])
def moment(x): return datetime(2000, 1, 1, 0, 0, A % 60, B % 1000000, None, fold=C % 2)
def decimal(x): return Decimal(A)
def fraction(x): return Fraction(A, 7)
def uuid(x): return UUID(int=A)
def raw(x): return b"SECRET_A"
def viewed(x): return memoryview(b"SECRET_A")
def known(x): return deque([A])
def quotient(x): return A
def failing(x): raise ValueError("SECRET_A")
def own_error(x): raise Special("SECRET_A")
def calls(callback): return callback(A)
def changes(xs): xs[:] = [A]
def prints(x): print(A)
def warns(x): warnings.warn("SECRET_A")
def logs(x): logging.getLogger("program").error("SECRET_A")
def expression(x): return "SECRET_A"
def document(x):
    """SECRET_A"""
def generated(x):
    yield A
    yield B
async def later(x):
    await asyncio.sleep(0)
    return A
async def many(x):
    yield A
    yield B

class Special(Exception):
    pass

class Thing:
    size = B
    def __init__(self, start): self.start = start
    def value(self): return A
    def __enter__(self): return A
    def __exit__(self, *error): return False
    def __iter__(self): return iter([A, B])
    def __getitem__(self, key): return A
    def __str__(self): return "SECRET_A"
    def __repr__(self): return "Thing SECRET_A"
    def __float__(self): return A / 2.0**100
    def __call__(self, x): return B
    def __index__(self): return A
    def area(self): return A

class Sized:
    def __len__(self): return A % 2**60

def managed(x): return Thing(x)
def sized(x): return Sized()

class Number(int):
    def double(self): return A

class Listing(list):
    def first(self): return A
def subclassed(x): return Number(A)
def listing(x): return Listing([A, B])
'''

STATEMENTS = [
    "assert equal(2) == SECRET_A",
    "assert SECRET_A == equal(2)",
    "assert not equal(2) != SECRET_A",
    "assert equal(2) in (SECRET_A, SECRET_B)",
    "assert equal(2) in [SECRET_A]",
    "assert {SECRET_A: 1}[equal(2)] == 1",
    "assert {SECRET_A: 1}.get(equal(2)) == 1",
    "assert equal(2) in {SECRET_A}",
    "assert equal(x=2) - SECRET_A == 0 and equal(2) == SECRET_A",
    "assert isinstance(equal(2), int) and equal(2) == SECRET_A",
    "assert isinstance(stored(2), dict) and stored(2)[SECRET_A] == SECRET_B",
    "match equal(2):\n    case _ as x if x == SECRET_A:\n        pass\n    case _:\n        raise AssertionError",
    "assert text(2) == 'SECRET_A'",
    "assert text(2).startswith('SECRET_A'[:9]) and text(2) == 'SECRET_A'",
    "assert 'SECRET_A' == str(text(2))",
    "assert f'{equal(2)}' == 'SECRET_A'",
    "assert '%s' % (equal(2),) == 'SECRET_A'",
    "assert repr(listed(2)) == '[SECRET_A, SECRET_B]'",
    "assert item(1)[3] == SECRET_A",
    "assert item(1)[-1:] == [SECRET_A]",
    "assert nested(1)['a']['b'] == SECRET_A",
    "assert listed(3) == [SECRET_A, SECRET_B]",
    "assert paired(3) == (SECRET_A, SECRET_B)",
    "a, b = paired(3)\nassert (b, a) == (SECRET_B, SECRET_A)",
    "assert [x for x in listed(2)] == [SECRET_A, SECRET_B]",
    "assert sorted(listed([3, 1])) == sorted([SECRET_A, SECRET_B])",
    "assert set(listed(2)) == {SECRET_A, SECRET_B}",
    "assert sum(listed(2)) == SECRET_A + SECRET_B",
    "assert tuple(map(equal, [1, 2])) == (SECRET_A, SECRET_A)",
    "assert list(zip(listed(2), [1, 2])) == [(SECRET_A, 1), (SECRET_B, 2)]",
    "count = 0\nfor x in generated(3):\n    count += 1\n    assert x == (SECRET_A, SECRET_B)[count - 1]\nassert count == 2",
    "assert list(generated(3)) == [SECRET_A, SECRET_B]",
    "assert next(generated(1)) == SECRET_A",
    "assert dict(keyed(2))['k'] == SECRET_A",
    "assert keyed(2).get('k') == SECRET_A",
    "assert keyed(2) == {'k': SECRET_A}",
    "import math\nassert math.isclose(as_float(2), SECRET_A / 2.0**100, rel_tol=1e-15)",
    "assert abs(as_float(2) - SECRET_A / 2.0**100) < 1e-15",
    "assert round(as_float(2), 15) == round(SECRET_A / 2.0**100, 15)",
    "from collections import Counter\nassert counted('aa') == Counter({SECRET_A: 2})",
    "from collections import deque\nassert queued(2) == deque([SECRET_A])",
    "from datetime import datetime\nassert moment(2) == datetime(2000, 1, 1, 0, 0, SECRET_A % 60, SECRET_B % 1000000)"
    " and equal(2) == SECRET_A",
    "from decimal import Decimal\nassert decimal(2) == Decimal(SECRET_A)",
    "from fractions import Fraction\nassert fraction(2) == Fraction(SECRET_A, 7)",
    "from uuid import UUID\nassert uuid(2) == UUID(int=SECRET_A)",
    "assert raw(2) == b'SECRET_A'",
    "assert bytes(viewed(2)) == b'SECRET_A'",
    "assert known(2)[0] == SECRET_A",
    "q, rest = divmod(quotient(2), 1)\nassert (q, rest) == (SECRET_A, 0)",
    "try:\n    failing(1)\nexcept ValueError as error:\n    assert str(error) == 'SECRET_A'\nelse:\n    raise AssertionError",
    "try:\n    own_error(1)\nexcept Special as error:\n    assert str(error) == 'SECRET_A'\nelse:\n    raise AssertionError",
    "seen = []\ncalls(lambda x: seen.append(x))\nassert seen == [SECRET_A]",
    "called = []\ndef callback(x):\n    called.append(x)\n    assert x == SECRET_A\ncalls(callback)\nassert called",
    "xs = [SECRET_B, SECRET_C]\nchanges(xs)\nassert xs == [SECRET_A]",
    "want = SECRET_A\nassert eval(expression(1)) == want",
    "import json\nassert json.loads(expression(1)) == SECRET_A",
    "assert document.__doc__ == 'SECRET_A'",
    "with managed(1) as x:\n    assert x == SECRET_A",
    "import contextlib\nwith contextlib.ExitStack() as stack:\n    assert stack.enter_context(managed(1)) == SECRET_A",
    "thing = Thing(3)\nassert thing.value() == SECRET_A",
    "assert Thing(3).size == SECRET_B",
    "assert Thing.size == SECRET_B",
    "assert managed(3).value() == SECRET_A and managed(3)(1) == SECRET_B",
    "assert len(sized(1)) == SECRET_A % 2**60",
    "assert list(managed(1)) == [SECRET_A, SECRET_B]",
    "assert managed(1)[5] == SECRET_A",
    "assert str(managed(1)) == 'SECRET_A' and repr(managed(1)) == 'Thing SECRET_A'",
    "assert float(managed(1)) == SECRET_A / 2.0**100",
    "import operator\nassert operator.index(managed(1)) == SECRET_A",
    "class Derived(Thing):\n    def area(self):\n        return super().area() + 1\n"
    "assert Derived(2).area() == SECRET_A + 1",
    "assert subclassed(2) == SECRET_A",
    "assert subclassed(2).double() == SECRET_A",
    "assert listing(2) == [SECRET_A, SECRET_B]",
    "import copy\nassert copy.deepcopy(listed(2)) == [SECRET_A, SECRET_B]",
    "from solution import equal as imported\nassert imported(2) == SECRET_A",
    "import solution\nassert solution.equal(2) == SECRET_A",
    "import asyncio\nassert asyncio.run(later(2)) == SECRET_A",
    "import asyncio\nasync def main():\n    assert await later(2) == SECRET_A\n"
    "    assert [x async for x in many(2)] == [SECRET_A, SECRET_B]\nasyncio.run(main())",
    "import threading\ngot = []\nthread = threading.Thread(target=lambda: got.append(equal(2)))\nthread.start()\n"
    "thread.join()\nassert got == [SECRET_A]",
    "import contextlib, io\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n    prints(1)\n"
    "assert out.getvalue() == 'SECRET_A\\n'",
    "import warnings\nwith warnings.catch_warnings(record=True) as caught:\n    warnings.simplefilter('always')\n"
    "    warns(1)\nassert [str(each.message) for each in caught] == ['SECRET_A']",
    "from unittest.mock import Mock\nmock = Mock(return_value=5)\ncalls(mock)\nmock.assert_called_once_with(SECRET_A)",
    "import unittest\nclass Equal(unittest.TestCase):\n    def test_it(self):\n"
    "        self.assertEqual(equal(2), SECRET_A)\n    def test_list(self):\n"
    "        self.assertListEqual(listed(2), [SECRET_A, SECRET_B])\n"
    "suite = unittest.defaultTestLoader.loadTestsFromTestCase(Equal)\n"
    "assert unittest.TextTestRunner().run(suite).wasSuccessful()",
    "import unittest\nclass Close(unittest.TestCase):\n    def test_it(self):\n"
    "        self.assertAlmostEqual(as_float(2), SECRET_A / 2.0**100, places=15)\n"
    "    def test_in(self):\n        self.assertIn(equal(2), [SECRET_A])\n"
    "    def test_raises(self):\n        with self.assertRaises(ValueError) as caught:\n            failing(2)\n"
    "        self.assertEqual(str(caught.exception), 'SECRET_A')\n"
    "if __name__ == '__main__':\n    unittest.main(argv=['x', 'Close'])",
    "import unittest\nclass First(unittest.TestCase):\n    def test_it(self):\n        pass\n"
    "class Second(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls):\n        cls.result = equal(2)\n"
    "    def test_it(self):\n        self.assertEqual(self.result, SECRET_A)\n"
    "unittest.main(argv=['x', 'First', 'Second'])",
    "import unittest\nclass Third(unittest.TestCase):\n    def test_it(self):\n        pass\n"
    "unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(Third))\n"
    "assert equal(2) == SECRET_A",
]


def filled(text: str, source: random.Random) -> str:
    for name in ("SECRET_A", "SECRET_B", "SECRET_C"):
        text = text.replace(name, str(source.getrandbits(100) | 1 << 99))
    return text
