"""YAML with places, filled from the environment."""

import pytest

from mainstem.pipelines.file.document import SourceLocation, parse, typed
from mainstem.pipelines.file.secrets import Secrets
from mainstem.pipelines.problems import FileProblem, Problems


def value_of(text: str, **environment: str) -> object:
    document = parse(text, environment, Secrets())
    assert not document.problems
    return typed(document.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: ${V}", {"a": "word"}),
        ("a: ${N}", {"a": 12}),
        ("a: '${N}'", {"a": "12"}),
        ("a: ${MISSING:-7}", {"a": 7}),
        ("a: ${EMPTY:-7}", {"a": 7}),
        ("a: ${EMPTY}", {"a": None}),
        ("a: x-${V}-${N}", {"a": "x-word-12"}),
        ("a: $${V}", {"a": "${V}"}),
        ("a: ${V:-d:e}", {"a": "word"}),
        ("a: ${MISSING:-http://h:1/p}", {"a": "http://h:1/p"}),
        ("a:\n- ${N}\n- ${T}", {"a": [12, True]}),
        ("a: ${STRUCTURE}", {"a": "b: {c: 1}"}),
        ("a: 2026-01-01", {"a": "2026-01-01"}),
        ("b: &b {x: 1, y: 2}\na: {<<: *b, y: 3}", {"b": {"x": 1, "y": 2}, "a": {"x": 1, "y": 3}}),
    ],
)  # fmt: skip
def test_variables_fill_values_and_never_structure(text: str, expected: object) -> None:
    environment = {"V": "word", "N": "12", "EMPTY": "", "T": "true", "STRUCTURE": "b: {c: 1}"}
    assert value_of(text, **environment) == expected


def test_a_variable_that_is_not_set_is_a_problem_with_its_place() -> None:
    document = parse("a: 1\nb:\n  c: ${NOWHERE}\n", {}, Secrets())
    [problem] = document.problems
    assert (problem.path, problem.line, problem.column) == ("b.c", 3, 6)
    assert "NOWHERE" in problem.message
    assert "${NOWHERE:-...}" in problem.remedy


def test_a_variable_inside_brackets_needs_quotes() -> None:
    assert value_of('a: ["${N}"]', N="12") == {"a": ["12"]}
    with pytest.raises(Problems) as caught:
        parse("a: [${N}]", {"N": "12"}, Secrets())
    assert "quotes" in caught.value.problems[0].remedy


def test_a_key_that_stands_twice_is_a_problem() -> None:
    document = parse("a:\n  b: 1\n  b: 2\n", {}, Secrets())
    [problem] = document.problems
    assert (problem.path, problem.line) == ("a.b", 3)
    assert "line 2" in problem.message
    assert document.value == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [1,\n", 2), ("a: b: c", 1), ("a:\n\t- 1", 2), ('a: "open', 1), ("a: @x", 1)],
)
def test_what_is_no_yaml_is_told_with_its_line(text: str, line: int) -> None:
    with pytest.raises(Problems) as caught:
        parse(text, {}, Secrets())
    [problem] = caught.value.problems
    assert problem.message.startswith("not YAML")
    assert problem.line == line


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + "".join(
            f"{new}: &{new} [{', '.join(['*' + old] * 10)}]\n"
            for old, new in zip("abcdef", "bcdefg", strict=True)
        ),
        "a: " + "x" * (1 << 20),
    ],
    ids=["contains itself", "aliases explode", "too large"],
)
def test_files_that_would_eat_the_memory_are_refused(text: str) -> None:
    with pytest.raises(Problems):
        parse(text, {}, Secrets())


def test_a_problem_is_located_at_the_nearest_place_that_the_file_has() -> None:
    document = parse("a:\n  b:\n    - c: 1\n", {}, Secrets())
    assert document.keys["a.b"] == SourceLocation(2, 3)
    for path, line in (("a.b[0].c", 3), ("a.b[0].missing.deep", 3), ("a.b[7]", 2), ("zzz", 1)):
        assert document.located(FileProblem(path, "x")).line == line, path
