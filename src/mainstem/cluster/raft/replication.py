"""Replication of entries: what a leader sends, how a follower handles it, what is committed."""

from mainstem.cluster.raft.messages import (
    Entry,
    EntryId,
    EntryType,
    MessageType,
    RaftMessage,
    SnapshotMeta,
)
from mainstem.cluster.raft.progress import Progress, ProgressState
from mainstem.cluster.raft.state import RaftState
from mainstem.model.ids import NodeId


def append_entries(state: RaftState, kind: EntryType, payloads: list[bytes]) -> EntryId:
    """Append a leader's new entries to its own log; the last one."""
    index = state.log.last_index
    entries = [
        Entry(state.term, index + place, kind, data) for place, data in enumerate(payloads, start=1)
    ]
    state.log.append(entries)
    return state.log.last_id


def broadcast_append(state: RaftState) -> None:
    """Send every member what it lacks, or at least the commit index."""
    for node in state.tracker.progress:
        if node != state.id:
            send_append(state, node)


def send_append(state: RaftState, to: NodeId, *, if_empty: bool = True) -> bool:
    """Send one message with the entries that a member lacks; whether one was sent."""
    progress = state.tracker.progress[to]
    if progress.is_paused:
        return False
    previous = progress.next - 1
    term = state.log.term(previous)
    if term is None:
        return _send_snapshot(state, to, progress)
    full = progress.state is ProgressState.StateReplicate and progress.is_full
    entries = () if full else state.log.page(progress.next, state.settings.append_bytes_max)
    if not entries and not if_empty:
        return False
    committed = state.log.committed
    state.send(
        RaftMessage(
            MessageType.MsgApp,
            to,
            state.id,
            state.term,
            index=previous,
            log_term=term,
            entries=entries,
            commit=committed,
        )
    )
    progress.sent_entries(len(entries))
    progress.sent_commit = committed
    return True


def _send_snapshot(state: RaftState, to: NodeId, progress: Progress) -> bool:
    if not progress.recent_active:
        return False
    snapshot = state.log.snapshot
    progress.become_snapshot(snapshot.index)
    kind = MessageType.MsgSnap
    state.send(RaftMessage(kind, to, state.id, state.term, snapshot=snapshot))
    return True


def maybe_commit(state: RaftState) -> bool:
    """Commit what a majority holds; whether that is more than before.

    Only an entry of the leader's own term is committed by counting; earlier ones are committed by
    preceding it (Raft paper, figure 8).
    """
    index = state.tracker.committed()
    if index <= state.log.committed or state.log.term(index) != state.term:
        return False
    state.log.commit_to(index)
    return True


def handle_append(state: RaftState, message: RaftMessage) -> None:
    """A follower receives entries."""
    if message.index < state.log.committed:
        state.reply(message, MessageType.MsgAppResp, index=state.log.committed)
        return
    previous = EntryId(message.index, message.log_term)
    last = state.log.maybe_append(previous, message.entries, message.commit)
    if last is not None:
        state.reply(message, MessageType.MsgAppResp, index=last)
        return
    # A guess where the logs agree saves the leader from probing entry by entry.
    hint = state.log.find_conflict_by_term(
        min(message.index, state.log.last_index), message.log_term
    )
    state.send(
        RaftMessage(
            MessageType.MsgAppResp,
            message.from_,
            state.id,
            state.term,
            index=message.index,
            log_term=hint.term,
            reject=True,
            reject_hint=hint.index,
        )
    )


def handle_append_response(state: RaftState, message: RaftMessage) -> bool:
    """A follower answered; whether more is committed now."""
    progress = state.tracker.progress[message.from_]
    progress.recent_active = True
    if message.reject:
        _handle_rejection(state, message, progress)
        return False
    probing = progress.state is ProgressState.StateProbe
    if not progress.maybe_update(message.index) and not (
        probing and progress.match == message.index
    ):
        return False
    _on_match(state, progress, message.index)
    committed = maybe_commit(state)
    if committed:
        broadcast_append(state)
    elif progress.sent_commit < min(state.log.committed, progress.next - 1):
        send_append(state, message.from_)
    while send_append(state, message.from_, if_empty=False):
        pass
    if message.from_ == state.lead_transferee and progress.match == state.log.last_index:
        send_timeout_now(state, message.from_)
    return committed


def _on_match(state: RaftState, progress: Progress, index: int) -> None:
    if progress.state is ProgressState.StateProbe:
        progress.become_replicate()
    elif progress.state is ProgressState.StateSnapshot:
        # Any way of reaching entries that are still in the log will do, not only this snapshot.
        if progress.match + 1 >= state.log.first_index:
            progress.become_probe()
            progress.become_replicate()
    else:
        progress.free_until(index)


def _handle_rejection(state: RaftState, message: RaftMessage, progress: Progress) -> None:
    guess = message.reject_hint
    if message.log_term > 0:
        guess = state.log.find_conflict_by_term(guess, message.log_term).index
    if progress.maybe_decrease_to(message.index, guess):
        send_append(state, message.from_)


def handle_heartbeat_response(state: RaftState, message: RaftMessage) -> None:
    """A follower answered a heartbeat; messages to it may have been lost."""
    progress = state.tracker.progress[message.from_]
    progress.recent_active = True
    progress.msg_app_flow_paused = False
    behind = progress.match < state.log.last_index
    if behind or progress.state is ProgressState.StateProbe:
        send_append(state, message.from_)


def send_timeout_now(state: RaftState, to: NodeId) -> None:
    """Ask a follower that has everything to campaign at once."""
    state.send(RaftMessage(MessageType.MsgTimeoutNow, to, state.id, state.term))


def report_unreachable(state: RaftState, node: NodeId) -> None:
    """Messages to a member were probably lost."""
    progress = state.tracker.progress.get(node)
    if progress is not None and progress.state is ProgressState.StateReplicate:
        progress.become_probe()


def report_snapshot(state: RaftState, node: NodeId, *, arrived: bool) -> None:
    """A snapshot transfer succeeded or failed; in either case the member's next answer decides."""
    progress = state.tracker.progress.get(node)
    if progress is None or progress.state is not ProgressState.StateSnapshot:
        return
    if not arrived:
        progress.pending_snapshot = 0
    progress.become_probe()
    progress.msg_app_flow_paused = True


def restore(state: RaftState, snapshot: SnapshotMeta) -> bool:
    """Start over from a leader's snapshot; False when this log has all of it.

    The snapshot may be older than the entry that adds this node: that entry follows.
    """
    if snapshot.index <= state.log.committed:
        return False
    if state.log.matches(snapshot.id):
        state.log.commit_to(snapshot.index)
        return False
    state.log.restore(snapshot)
    state.tracker.progress.clear()
    state.tracker.switch_to(snapshot.conf_state, snapshot.index + 1)
    return True


def handle_snapshot(state: RaftState, message: RaftMessage) -> None:
    """All of a snapshot has arrived."""
    assert message.snapshot is not None, "checked when it was decoded"
    restored = restore(state, message.snapshot)
    index = state.log.last_index if restored else state.log.committed
    state.reply(message, MessageType.MsgAppResp, index=index)
