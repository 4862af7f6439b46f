"""Proposals between their making and their place in the log."""

import pytest
from tests.unit.cluster.raft.kit import ONE, durable, node

from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.drivers.pending_driver import OutcomeUnknown, PendingProposals
from mainstem.cluster.raft.messages import EntryId
from mainstem.model.errors import InvalidRequest
from mainstem.model.limits import RAFT_ENTRY_BYTES_MAX


async def test_a_proposal_made_for_one_term_is_not_handed_over_in_another() -> None:
    lone = node(durable(voters=(ONE,))).core
    lone.campaign(0.0)
    while lone.has_ready:
        lone.persisted(lone.ready(), 0.0)
    assert lone.state.is_leader
    proposals = PendingProposals(10.0)
    late = proposals.gather(b"late", lone.state.term - 1)
    right = proposals.gather(b"right", lone.state.term)
    any_term = proposals.gather(b"any", None)

    proposals.submit(lone, 0.0)

    with pytest.raises(NotLeader):
        await late
    assert not right.done()
    assert not any_term.done()
    last = lone.state.log.last_index
    stored = lone.ready().entries
    assert [entry.data for entry in stored if entry.index > last - 2] == [b"right", b"any"]


async def test_an_entry_that_nodes_could_not_send_each_other_is_refused_and_others_are_taken() -> (
    None
):
    proposals = PendingProposals(10.0)
    other = proposals.gather(b"small", None)
    with pytest.raises(InvalidRequest, match="a change of"):
        proposals.gather(bytes(RAFT_ENTRY_BYTES_MAX + 1), None)
    proposals.gather(bytes(RAFT_ENTRY_BYTES_MAX), None)
    assert not other.done()


async def test_a_proposal_whose_index_is_used_again_in_a_later_term_is_answered() -> None:
    proposals = PendingProposals(10.0)
    earlier = proposals.expect(EntryId(16, 2))
    later = proposals.expect(EntryId(16, 5))
    assert isinstance(earlier.exception(), OutcomeUnknown)
    assert not later.done()
