import pytest
from tests.chaos.catalogue_history import (
    CatalogueCommand,
    CatalogueHistory,
    CatalogueKind,
    check_subject,
)
from tests.chaos.history import Outcome

OK, UNKNOWN, REFUSED = Outcome.OK, Outcome.UNKNOWN, Outcome.REFUSED


@pytest.mark.parametrize(
    ("commands", "final", "wrong"),
    [
        ([("create", 3, OK)], 3, set()),
        ([("create", 3, OK)], 0, {CatalogueKind.WRONG_STATE}),
        ([("create", 3, UNKNOWN)], 0, set()),
        ([("create", 3, UNKNOWN), ("create", 3, REFUSED)], 3, set()),
        ([("create", 3, UNKNOWN), ("create", 3, REFUSED)], 0, {CatalogueKind.WRONG_STATE}),
        ([("create", 3, REFUSED)], 0, {CatalogueKind.FALSE_REFUSAL}),
        ([("create", 3, OK), ("grow", 6, UNKNOWN), ("grow", 6, REFUSED)], 6, set()),
        (
            [("create", 3, OK), ("grow", 6, UNKNOWN), ("grow", 6, REFUSED)],
            9,
            {CatalogueKind.WRONG_STATE},
        ),
        ([("create", 3, OK), ("delete", 0, UNKNOWN), ("delete", 0, REFUSED)], 0, set()),
        ([("create", 3, OK), ("delete", 0, OK)], 3, {CatalogueKind.WRONG_STATE}),
        ([("set", 1, OK), ("set", 2, OK)], 2, set()),
        ([("set", 1, OK), ("set", 2, OK)], 1, {CatalogueKind.WRONG_STATE}),
        ([("set", 1, OK), ("set", 2, UNKNOWN)], 1, set()),
        ([("set", 1, OK), ("set", 2, UNKNOWN)], 2, set()),
        ([("set", 1, OK), ("set", 2, UNKNOWN)], 0, {CatalogueKind.WRONG_STATE}),
        ([("set", 1, REFUSED)], 0, {CatalogueKind.FALSE_REFUSAL}),
        ([("put", 1, UNKNOWN), ("put", 2, OK)], 2, set()),
        ([("put", 1, OK), ("delete", 0, UNKNOWN), ("delete", 0, REFUSED)], 0, set()),
        (
            [("put", 1, OK), ("delete", 0, UNKNOWN), ("delete", 0, REFUSED)],
            1,
            {CatalogueKind.WRONG_STATE},
        ),
        ([("put", 1, OK), ("delete", 0, REFUSED)], 1, {CatalogueKind.FALSE_REFUSAL}),
    ],
)
def test_the_last_state_of_a_subject_follows_from_its_commands(
    commands: list[tuple[str, int, Outcome]], final: int, wrong: set[str]
) -> None:
    sent = [CatalogueCommand(*command) for command in commands]
    history = CatalogueHistory("s", commands=sent, final=final)

    assert {anomaly.kind for anomaly in check_subject(history)} == wrong


def test_a_subject_whose_last_state_nobody_saw_is_not_judged_by_it() -> None:
    history = CatalogueHistory("s", "configs", [CatalogueCommand("set", 1, OK)])
    assert list(check_subject(history)) == []
