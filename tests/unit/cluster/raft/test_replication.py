"""Entries on their way: windows, lost messages, guesses, snapshots."""

import msgspec
import pytest
from tests.unit.cluster.raft.kit import ONE, THREE, TWO, Fixture, durable, kinds, node

from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.messages import (
    ConfState,
    DurableState,
    Entry,
    EntryId,
    HardState,
    MessageType,
    RaftMessage,
    SnapshotMeta,
    StateType,
)
from mainstem.cluster.raft.progress import Progress, ProgressState
from mainstem.model.errors import ErrorCode, Unavailable

M = MessageType
P = ProgressState


def leading(**settings: object) -> Fixture:
    """A leader whose followers have everything."""
    story = node(durable(), chance=0.0)
    story.core.state.settings = msgspec.structs.replace(story.core.state.settings, **settings)
    story.core.state.tracker._inflight_max = story.core.state.settings.inflight_max
    story.lead()
    for follower in (TWO, THREE):
        story.step(M.MsgAppResp, follower, story.term, index=2)
    story.work()
    return story


def to_two(messages: list[RaftMessage]) -> list[RaftMessage]:
    return [message for message in messages if message.to == TWO]


def progress(story: Fixture) -> Progress:
    return story.core.state.tracker.progress[TWO]


def test_entries_follow_each_other_without_waiting_up_to_the_window() -> None:
    story = leading(inflight_max=3)
    for number in range(6):
        story.core.propose([b"%d" % number], story.now_s)
    sent = [message for message in to_two(story.work()) if message.entries]
    assert [message.index for message in sent] == [2, 3, 4]
    story.step(M.MsgAppResp, TWO, story.term, index=3)
    assert [message.index for message in to_two(story.work()) if message.entries] == [5]


def test_one_message_holds_as_much_as_its_size_allows() -> None:
    story = leading(append_bytes_max=100)
    progress(story).become_probe()
    story.core.propose([bytes(30) for _ in range(5)], story.now_s)
    [first] = [message for message in to_two(story.work()) if message.entries]
    assert len(first.entries) == 1
    story.step(M.MsgAppResp, TWO, story.term, index=3)
    sent = [message for message in to_two(story.work()) if message.entries]
    assert [entry.index for message in sent for entry in message.entries] == [4, 5, 6, 7]


def test_while_probing_one_message_is_under_way() -> None:
    story = leading()
    progress(story).become_probe()
    for number in range(3):
        story.core.propose([b"%d" % number], story.now_s)
    assert len([message for message in to_two(story.work()) if message.entries]) == 1


def test_a_heartbeat_s_answer_lets_a_lost_probe_be_sent_again() -> None:
    story = leading()
    progress(story).become_probe()
    story.core.propose([b"x"], story.now_s)
    story.work()
    story.step(M.MsgHeartbeatResp, TWO, story.term)
    [again] = to_two(story.work())
    assert (again.type, again.index, len(again.entries)) == (M.MsgApp, 2, 1)


def test_lost_entries_are_noticed_by_the_next_heartbeat_and_sent_again() -> None:
    story = leading()
    story.core.propose([b"lost"], story.now_s)
    story.work()  # and lost
    story.step(M.MsgHeartbeatResp, TWO, story.term)
    [empty] = to_two(story.work())
    assert (empty.index, empty.entries) == (3, ())
    story.step(M.MsgAppResp, TWO, story.term, index=3, reject=True, reject_hint=2, log_term=2)
    [again] = to_two(story.work())
    assert [entry.data for entry in again.entries] == [b"lost"]
    assert progress(story).state is P.StateProbe


def test_a_full_window_does_not_stall_for_ever() -> None:
    story = leading(inflight_max=1)
    story.core.propose([b"a"], story.now_s)
    story.core.propose([b"b"], story.now_s)
    story.work()
    assert progress(story).is_paused
    story.step(M.MsgHeartbeatResp, TWO, story.term)
    [probe] = to_two(story.work())
    assert (probe.index, probe.entries) == (3, ())


def test_old_answers_do_not_move_anything_back() -> None:
    story = leading()
    story.core.propose([b"a", b"b"], story.now_s)
    story.work()
    story.step(M.MsgAppResp, TWO, story.term, index=4)
    story.work()
    story.step(M.MsgAppResp, TWO, story.term, index=3)
    story.step(M.MsgAppResp, TWO, story.term, index=2, reject=True, reject_hint=1)
    assert (progress(story).match, progress(story).next) == (4, 5)
    assert progress(story).state is P.StateReplicate


def test_a_guess_by_terms_skips_what_cannot_agree() -> None:
    """A follower with a long tail of other terms costs two questions, not one for each entry."""
    leader = node(durable(*[1] * 5, *[5] * 20, term=6), pre_vote=False)
    follower = node(durable(*[1] * 5, *[3] * 30, term=6), node_id=TWO)
    questions = 0
    messages = to_two(leader.lead())
    while messages and questions < 20:
        questions += 1
        for message in messages:
            follower.core.step(message, leader.now_s)
        for answer in follower.work():
            leader.core.step(answer, leader.now_s)
        messages = to_two(leader.work())
    assert follower.core.state.log.last_id == leader.core.state.log.last_id
    assert questions <= 5


def test_followers_hear_about_a_commit_without_waiting_for_a_heartbeat() -> None:
    story = leading()
    story.core.propose([b"x"], story.now_s)
    story.work()
    story.step(M.MsgAppResp, TWO, story.term, index=3)
    sent = story.work()
    assert {(message.to, message.commit) for message in sent} == {(TWO, 3), (THREE, 3)}


def test_a_heartbeat_never_tells_more_than_the_follower_is_known_to_hold() -> None:
    story = leading()
    story.core.propose([b"x"], story.now_s)
    story.work()
    story.step(M.MsgAppResp, THREE, story.term, index=3)
    story.work()
    story.tick(0.1)
    commits = {m.to: m.commit for m in story.work() if m.type is M.MsgHeartbeat}
    assert commits == {TWO: 2, THREE: 3}


def test_a_follower_commits_no_further_than_what_it_was_sent() -> None:
    """What stands behind that in its log may be another leader's."""
    story = node(durable(1, 1, 1))
    story.step(M.MsgApp, TWO, 1, index=1, log_term=1, entries=(Entry(1, 2, data=b"2"),), commit=4)
    assert story.committed == 2


def test_too_much_that_waits_is_refused() -> None:
    story = leading(uncommitted_bytes_max=100)
    story.core.propose([bytes(90)], story.now_s)
    with pytest.raises(Unavailable) as refused:
        story.core.propose([bytes(20)], story.now_s)
    assert refused.value.code is ErrorCode.OVERLOADED
    story.work()
    story.step(M.MsgAppResp, TWO, story.term, index=3)
    story.work()
    story.core.propose([bytes(20)], story.now_s)


def test_only_a_leader_takes_proposals() -> None:
    story = node()
    story.step(M.MsgHeartbeat, THREE, 1)
    with pytest.raises(NotLeader) as refused:
        story.core.propose([b"x"], story.now_s)
    assert refused.value.leader == THREE


# Snapshots


def behind_a_snapshot() -> Fixture:
    """A leader that has forgotten what its follower lacks."""
    story = leading()
    story.core.propose([b"%d" % number for number in range(5)], story.now_s)
    story.work()
    story.step(M.MsgAppResp, THREE, story.term, index=7)
    story.work()
    story.core.compact(SnapshotMeta(7, story.term, ConfState((ONE, TWO, THREE))))
    story.step(M.MsgAppResp, TWO, story.term, index=7, reject=True, reject_hint=2, log_term=2)
    return story


def test_a_follower_that_needs_forgotten_entries_is_sent_a_snapshot() -> None:
    story = behind_a_snapshot()
    [snap] = to_two(story.work())
    assert (snap.type, snap.snapshot) == (M.MsgSnap, story.core.state.log.snapshot)
    assert progress(story).state is P.StateSnapshot
    story.core.propose([b"x"], story.now_s)
    assert to_two(story.work()) == []


def test_a_follower_that_was_not_heard_is_sent_no_snapshot() -> None:
    story = behind_a_snapshot()
    story.work()
    story.core.report_snapshot(TWO, arrived=False)
    progress(story).recent_active = False
    progress(story).msg_app_flow_paused = False
    story.core.propose([b"x"], story.now_s)
    assert to_two(story.work()) == []


def test_after_a_snapshot_entries_go_on_where_it_ends() -> None:
    story = behind_a_snapshot()
    story.core.propose([b"x"], story.now_s)
    story.work()
    story.core.report_snapshot(TWO, arrived=True)
    story.step(M.MsgAppResp, TWO, story.term, index=7)
    [sent] = to_two(story.work())
    assert (sent.index, [entry.data for entry in sent.entries]) == (7, [b"x"])
    assert progress(story).state is P.StateReplicate


def test_a_snapshot_that_did_not_arrive_is_tried_again_after_the_next_heartbeat() -> None:
    story = behind_a_snapshot()
    story.work()
    story.core.report_snapshot(TWO, arrived=False)
    assert progress(story).state is P.StateProbe
    assert to_two(story.work()) == []
    story.step(M.MsgHeartbeatResp, TWO, story.term)
    assert kinds(to_two(story.work())) == [(M.MsgSnap, TWO)]


def test_an_answer_that_reaches_entries_that_are_still_here_ends_the_waiting() -> None:
    story = behind_a_snapshot()
    story.work()
    story.step(M.MsgAppResp, TWO, story.term, index=7)
    assert progress(story).state is P.StateReplicate


META = SnapshotMeta(20, 3, ConfState((ONE, TWO, THREE)))


def test_a_snapshot_replaces_the_log_of_a_follower() -> None:
    story = node(durable(1, 2))
    story.step(M.MsgSnap, TWO, 3, snapshot=META)
    ready = story.core.ready()
    assert (ready.snapshot, ready.entries) == (META, ())
    assert kinds(ready.messages_after_append) == [(M.MsgAppResp, TWO)]
    assert ready.messages_after_append[0].index == 20
    story.finish(ready)
    assert story.core.state.log.last_id == EntryId(20, 3)
    assert story.committed == story.core.state.log.applied == 20


@pytest.mark.parametrize("index", [10, 20, 25, 30])
def test_a_snapshot_of_the_past_is_answered_with_what_is_committed(index: int) -> None:
    kept = DurableState(
        HardState(3, commit=30), META, META.id, tuple(Entry(3, n) for n in range(21, 31))
    )
    story = node(kept)
    story.step(M.MsgSnap, TWO, 3, snapshot=SnapshotMeta(index, 3, META.conf_state))
    ready = story.core.ready()
    assert ready.snapshot is None
    assert [message.index for message in ready.messages_after_append] == [30]


def test_a_snapshot_of_entries_that_are_here_only_commits_them() -> None:
    kept = DurableState(
        HardState(3, commit=20), META, META.id, tuple(Entry(3, n) for n in range(21, 31))
    )
    story = node(kept)
    story.step(M.MsgSnap, TWO, 3, snapshot=SnapshotMeta(25, 3, META.conf_state))
    ready = story.core.ready()
    assert ready.snapshot is None
    assert story.committed == 25
    assert story.core.state.log.last_index == 30


def test_a_node_with_a_snapshot_not_yet_on_its_disk_does_not_campaign() -> None:
    story = node()
    story.step(M.MsgSnap, TWO, 3, snapshot=META)
    story.tick()
    assert story.state is StateType.StateFollower


def test_entries_before_a_snapshot_are_kept_for_followers_that_lag_a_little() -> None:
    story = leading()
    story.core.propose([b"%d" % number for number in range(8)], story.now_s)
    story.work()
    story.step(M.MsgAppResp, THREE, story.term, index=10)
    story.work()
    story.core.compact(SnapshotMeta(10, story.term, story.core.conf_state), keep=4)
    assert story.core.state.log.first_index == 7
    story.step(M.MsgAppResp, TWO, story.term, index=10, reject=True, reject_hint=7, log_term=2)
    [sent] = to_two(story.work())
    assert (sent.type, sent.index) == (M.MsgApp, 7)


def test_an_unreachable_follower_is_probed_again() -> None:
    story = leading()
    story.core.propose([b"x"], story.now_s)
    story.work()
    story.core.report_unreachable(TWO)
    assert (progress(story).state, progress(story).next) == (P.StateProbe, 3)
