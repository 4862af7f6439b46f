"""The rules of replicated ranges, searched exhaustively in small models.

``make sim`` searches the larger ones.
"""

from functools import cache

import pytest
from tests.kit.range_checker.cases import BROKEN, SOUND, ModelCase, main
from tests.kit.range_checker.search import search
from tests.kit.range_checker.state import (
    Bounds,
    Oracle,
    RangeRules,
    canonical,
    first,
    violation,
)
from tests.kit.range_checker.steps import ModelSteps

search_once = cache(search)


@pytest.mark.parametrize(
    "case", [case for case in SOUND if not case.large], ids=lambda case: case.name
)
def test_no_course_of_events_breaks_the_protocol(case: ModelCase) -> None:
    found = search_once(case.bounds, case.rules)
    assert found.violation is None, "\n".join(found.trace)


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_a_protocol_without_one_of_its_rules_is_caught(case: ModelCase) -> None:
    found = search_once(case.bounds, case.rules)
    assert found.violation is case.expected
    assert found.trace


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_a_broken_case_lacks_a_rule_and_is_sound_with_it(case: ModelCase) -> None:
    assert case.rules != RangeRules()
    assert search_once(case.bounds, RangeRules()).violation is None


def test_every_oracle_is_violated_by_some_broken_case() -> None:
    assert {case.expected for case in BROKEN} == set(Oracle)


def test_every_rule_is_broken_by_some_case() -> None:
    broken = {
        name
        for case in BROKEN
        for name, value in case.rules._asdict().items()
        if value != RangeRules._field_defaults[name]
    }
    assert broken == set(RangeRules._fields)


def test_the_trace_of_a_violation_can_be_repeated_step_by_step() -> None:
    bounds, rules = Bounds(), RangeRules(freezes=False)
    found = search(bounds, rules)
    state = first(bounds)
    for label in found.trace:
        state = next(
            reached for name, reached in ModelSteps(bounds, rules).after(state) if name == label
        )
    assert violation(state, bounds) is Oracle.ACKED_LOST


def test_states_that_differ_in_the_names_of_replicas_are_one() -> None:
    bounds = Bounds()
    steps = ModelSteps(bounds, RangeRules())
    assigned = next(reached for name, reached in steps.after(first(bounds)) if "assigns" in name)
    taken = [reached for name, reached in steps.after(assigned) if "takes offset" in name]
    assert len(taken) == bounds.replicas
    assert len({canonical(state) for state in taken}) == 1


def test_a_model_that_is_too_large_is_not_called_checked() -> None:
    with pytest.raises(AssertionError, match="use smaller bounds"):
        search(Bounds(), RangeRules(), states_max=100)


def test_the_command_prints_each_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["go on while the seal"]) == 0
    output = capsys.readouterr().out
    assert "ACKED_LOST" in output
    assert " 1. writer 1 assigns offset 0" in output
