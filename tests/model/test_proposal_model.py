"""Commands whose outcome is unknown and that are sent again, searched exhaustively."""

import pytest
from tests.kit.proposal_model import (
    AGAIN,
    CREATE,
    DELETE,
    SEAL,
    TAKE,
    Promise,
    ProposalRules,
    search,
)

WORLDS = [
    (SEAL,),
    (TAKE,),
    (SEAL, SEAL),
    (SEAL, TAKE),
    (CREATE, DELETE),
    (CREATE, CREATE),
    (CREATE, AGAIN, DELETE),
]


@pytest.mark.parametrize("kinds", WORLDS, ids="-".join)
def test_no_course_of_events_breaks_a_promise(kinds: tuple[str, ...]) -> None:
    # Only cases of two senders have repeats: three senders that repeat are too many states.
    found = search(kinds, ProposalRules(), tries=2 if len(kinds) < 3 else 1)
    assert found.broken is None, "\n".join(found.trace)
    assert found.states > 20


@pytest.mark.parametrize(
    ("kinds", "rules", "expected"),
    [
        ((TAKE,), ProposalRules(waits_for_outcome=False), Promise.ONCE),
        ((TAKE,), ProposalRules(decides_once=False), Promise.ONCE),
        ((SEAL,), ProposalRules(decides_once=False), Promise.REFUSED_IS_REFUSED),
        (
            (SEAL, SEAL),
            ProposalRules(waits_for_outcome=False, ignores_stale_facts=False),
            Promise.ONE_RANGE,
        ),
        # A rule of its own: ignoring facts does not make up for deciding too early.
        ((SEAL, SEAL), ProposalRules(waits_for_outcome=False), Promise.DONE_IS_DONE),
        ((CREATE, DELETE), ProposalRules(commands_end_with_term=False), Promise.REFUSED_IS_REFUSED),
        ((CREATE, DELETE), ProposalRules(keeps_replies=False), Promise.REFUSED_IS_REFUSED),
        ((CREATE, AGAIN, DELETE), ProposalRules(refuses_used_ids=False), Promise.DONE_IS_DONE),
    ],
)
def test_without_a_rule_a_promise_is_broken(
    kinds: tuple[str, ...], rules: ProposalRules, expected: Promise
) -> None:
    found = search(kinds, rules)
    assert found.broken is expected, found
    assert found.trace


def test_facts_that_no_longer_apply_are_ignored_in_a_log_that_holds_them_twice() -> None:
    early = ProposalRules(waits_for_outcome=False)
    assert search((SEAL,), early._replace(ignores_stale_facts=False)).broken is Promise.ONE_RANGE
    assert search((SEAL,), early).broken is None
