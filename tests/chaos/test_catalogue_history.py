import pytest
from tests.chaos.catalogue_history import CatalogueKind, TopicCommand, TopicHistory, check_topic
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
    ],
)
def test_the_last_state_of_a_topic_follows_from_its_commands(
    commands: list[tuple[str, int, Outcome]], final: int, wrong: set[str]
) -> None:
    history = TopicHistory("t", [TopicCommand(*command) for command in commands], final)

    assert {anomaly.kind for anomaly in check_topic(history)} == wrong
