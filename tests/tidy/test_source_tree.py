"""The rules see every statement, however deep it stands."""

import pytest
from tests.tidy.source_tree import methods_with_inherited, parsed

DEEP = """
class Outer:
    def first(self):
        for _ in ():
            try:
                pass
            except OSError:
                match 1:
                    case 1:
                        with open("x"):
                            {statement}
            else:
                pass
"""
ELSEWHERE = """
while False:
    pass
else:
    try:
        pass
    finally:
        if True:
            pass
        else:
            {statement}
"""


@pytest.mark.parametrize("place", [DEEP, ELSEWHERE])
def test_imports_coroutines_and_classes_are_found_anywhere(place: str) -> None:
    assert parsed(place.format(statement="import os.path")).imports == {"os"}
    assert parsed(place.format(statement="from time import sleep")).imports == {"time"}
    assert parsed(place.format(statement="async def later(): await x")).is_async
    assert not parsed(place.format(statement="pass")).is_async
    inner = "class Inner: x = lambda: 1"
    assert ("Inner", 0) in parsed(place.format(statement=inner)).methods


def test_methods_are_counted_by_class_also_where_two_bear_one_name() -> None:
    twice = "class A:\n  def f(self): ...\n  async def g(self): ...\nclass A:\n  x = 1\n"
    assert sorted(parsed(twice).methods) == [("A", 0), ("A", 2)]


def test_inherited_methods_are_found_through_imports_and_counted_once() -> None:
    tree = {
        "a/top.py": parsed("class Top:\n  def f(self): ...\n  def g(self): ...\n"),
        "a/__init__.py": parsed("class Top:\n  def other(self): ...\n"),
        "b.py": parsed(
            "from mainstem.a.top import Top as Renamed\n"
            "from mainstem.a import top\n"
            "class Middle(Renamed, Generic[T]):\n  def f(self): ...\n  def h(self): ...\n"
            "class Low(Middle[int], Exception):\n  def i(self): ...\n"
            "class Side(top.Top): ...\n"
        ),
    }
    found = methods_with_inherited(tree)
    assert found["b.py:Middle"] == {"f", "g", "h"}
    assert found["b.py:Low"] == {"f", "g", "h", "i"}
    assert found["b.py:Side"] == {"f", "g"}
    assert found["a/__init__.py:Top"] == {"other"}


def test_the_docstring_is_that_of_the_module() -> None:
    assert parsed('"""Says it."""\nimport os\n').docstring == "Says it."
    assert parsed("import os\n").docstring is None
