"""Names of fields and conditions: what is read, and what is refused."""

import pytest

from mainstem.pipelines.transforms.conditions import Comparison, ConditionList, Not, parse_condition
from mainstem.pipelines.transforms.paths import FieldPath, parse_path


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a", FieldPath("a", None)),
        ("a b-c", FieldPath("a b-c", None)),
        ("a.b", FieldPath("a", "$['b']")),
        ("a[0].b", FieldPath("a", "$[0]['b']")),
        ("['a.b']", FieldPath("a.b", None)),
        ("['a.b'].c", FieldPath("a.b", "$['c']")),
        ("a['it[s']", FieldPath("a", "$['it[s']")),
        ('a["it\'s"]', FieldPath("a", '$["it\'s"]')),
        ("ä.ö", FieldPath("ä", "$['ö']")),
    ],
)
def test_a_field_name_is_read(name: str, path: FieldPath) -> None:
    assert parse_path(name) == path


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "a[", "a[b]", "a[0]b", "[1]", "a'b"])
def test_what_is_no_field_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_path(name)


def test_and_binds_stronger_than_or() -> None:
    condition = parse_condition("a = 1 or b = 2 and not c = 3")
    assert isinstance(condition, ConditionList)
    assert condition.any
    first, second = condition.parts
    assert isinstance(first, Comparison)
    assert isinstance(second, ConditionList)
    assert isinstance(second.parts[1], Not)


def test_words_numbers_and_texts_are_told_apart() -> None:
    condition = parse_condition("""a in (x, 1.50, '2', "it's", -3e2, 'don\\'t')""")
    assert isinstance(condition, Comparison)
    texts = [literal.text for literal in condition.literals]
    assert texts == ["x", "1.50", "2", "it's", "-3e2", "don't"]
    assert [literal.number is not None for literal in condition.literals] == [
        False, True, False, False, True, False,
    ]  # fmt: skip


def test_a_bare_pattern_runs_to_the_end() -> None:
    condition = parse_condition("email matches .*@(a|b)\\.com and more")
    assert isinstance(condition, Comparison)
    assert condition.literals[0].text == ".*@(a|b)\\.com and more"


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    with pytest.raises(ValueError, match="deep"):
        parse_condition("(" * 10_000 + "a = 1" + ")" * 10_000)
    with pytest.raises(ValueError, match="deep"):
        parse_condition("not " * 10_000 + "a = 1")
