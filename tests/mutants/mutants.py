"""Deliberate bugs, one at a time, and the test that notices each.

Mutants measure the test suite. Every mutant replaces one piece of text of one module;
``run.py`` runs the named tests against it, and they must fail. A change of the source that no
longer contains the text fails the suite too, so that the list stays true.

The first twelve are the classic mistakes of Raft implementations. Random testing alone does not
find all of them in reasonable time: entries of old terms committed by counting, and a leader that
counts its own unwritten entry, survived hours of it and need scenarios of their own.
"""

from typing import NamedTuple

CLUSTER = "mainstem.cluster."
UNIT = "tests/unit/cluster/raft/"
EPISODES = "tests/properties/test_raft_episodes.py"
STORM = "tests/properties/test_raft_storm.py"
PLACEMENT = "tests/unit/placement/"
STREAMS = "tests/unit/streams/test_replicated_streams.py"
ANY_FACTS = "tests/properties/test_any_facts.py"


class Mutant(NamedTuple):
    """One bug: the module, the change, and the test that notices it."""

    name: str
    module: str
    before: str
    after: str
    killer: str

    @property
    def full_module(self) -> str:
        """The module's whole name; a short one is of the cluster package."""
        return self.module if self.module.startswith("mainstem.") else CLUSTER + self.module


MUTANTS = (
    Mutant(
        "nothing is synced",
        "raft.persistence.wal_storage",
        "        self._sync(self._fd)\n        write_mark(",
        "        write_mark(",
        UNIT + "test_wal_storage.py::test_every_frame_is_on_the_disk_when_append_returns",
    ),
    Mutant(
        "an acknowledgement leaves before the write is durable",
        "raft.state",
        "        MessageType.MsgAppResp,\n        MessageType.MsgVote,\n",
        "        MessageType.MsgVote,\n",
        EPISODES,
    ),
    Mutant(
        "the vote is not kept",
        "raft.core",
        "keep = bool(entries or snapshot or changes or _vote_differs(state, self._handed_state))",
        "keep = bool(entries or snapshot or changes)",
        EPISODES,
    ),
    Mutant(
        "two votes in one term",
        "raft.election",
        "        state.vote == message.from_\n",
        "        True\n",
        EPISODES,
    ),
    Mutant(
        "a vote for a log that is behind",
        "raft.election",
        "    if may_vote and _has_all(state, message):\n",
        "    if may_vote:\n",
        EPISODES,
    ),
    Mutant(
        "a majority of one too few",
        "raft.quorum",
        "return len(voters) // 2 + 1",
        "return max(1, len(voters) // 2)",
        EPISODES,
    ),
    Mutant(
        "the entry before is not checked",
        "raft.raft_log",
        "        if not self.matches(previous):\n",
        "        if self.term(previous.index) is None:\n",
        EPISODES,
    ),
    Mutant(
        "entries that agree are cut off",
        "raft.raft_log",
        "            if self.term(entry.index) != entry.term:\n",
        "            if entry.index > self.committed:\n",
        EPISODES,
    ),
    Mutant(
        "a read before anything is committed in the term",
        "raft.reads",
        "    elif not state.committed_in_term:\n",
        "    elif not state.term:\n",
        UNIT + "test_reads.py::test_a_new_leader_serves_no_read_before_it_has_committed",
    ),
    Mutant(
        "a read without a majority",
        "raft.reads",
        "    elif state.tracker.voters == (state.id,):\n",
        "    elif state.id in state.tracker.voters:\n",
        EPISODES,
    ),
    Mutant(
        "an entry of an old term is committed by counting",
        "raft.replication",
        "    if index <= state.log.committed or state.log.term(index) != state.term:\n",
        "    if index <= state.log.committed:\n",
        UNIT + "test_paper.py::test_an_entry_of_an_earlier_term_is_not_committed_by_counting",
    ),
    Mutant(
        "a leader counts its own entry before it is durable",
        "raft.replication",
        "    state.log.append(entries)\n    return",
        "    state.log.append(entries)\n"
        "    state.tracker.progress[state.id].maybe_update(state.log.last_index)\n    return",
        UNIT + "test_durability.py"
        "::test_a_leader_does_not_count_its_own_entry_before_it_is_durable",
    ),
    # Others than the classic ones.
    Mutant(
        "a write that is done counts for the next one too",
        "raft.state",
        "progress.maybe_update(self.log.stable)",
        "progress.maybe_update(self.log.last_index)",
        UNIT + "test_durability.py"
        "::test_a_write_that_is_done_counts_for_itself_and_not_for_the_next_one",
    ),
    Mutant(
        "a request for votes leaves before the log it speaks of is durable",
        "raft.state",
        "        MessageType.MsgVote,\n        MessageType.MsgVoteResp,\n",
        "        MessageType.MsgVoteResp,\n",
        UNIT + "test_durability.py"
        "::test_a_request_for_votes_leaves_after_the_log_it_speaks_of_is_durable",
    ),
    Mutant(
        "a vote leaves before it is durable",
        "raft.state",
        "        MessageType.MsgVoteResp,\n        MessageType.MsgPreVote,\n",
        "        MessageType.MsgPreVote,\n",
        UNIT + "test_durability.py::test_a_vote_leaves_after_it_is_durable",
    ),
    Mutant(
        "a new term keeps the old vote",
        "raft.state",
        "            self.term, self.vote = term, NO_NODE\n",
        "            self.term = term\n",
        UNIT + "test_paper.py::test_a_node_that_sees_a_later_term_follows_it",
    ),
    Mutant(
        "what was replaced while it was written counts as written",
        "raft.raft_log",
        "        if entry.index > self.stable and self.matches(entry):\n",
        "        if entry.index > self.stable:\n",
        UNIT + "test_durability.py"
        "::test_entries_that_were_replaced_while_they_were_stored_do_not_count",
    ),
    Mutant(
        "a heartbeat commits what the follower may not hold",
        "raft.reads",
        "commit = min(state.tracker.progress[to].match, state.log.committed)",
        "commit = state.log.committed",
        EPISODES,
    ),
    Mutant(
        "an append commits what stands behind it",
        "raft.raft_log",
        "        self.commit_to(min(commit, last))\n",
        "        self.commit_to(min(commit, self.last_index))\n",
        UNIT + "test_replication.py::test_a_follower_commits_no_further_than_what_it_was_sent",
    ),
    Mutant(
        "candidates are listened to although a leader is heard",
        "raft.stepping",
        "        if state.in_lease and not forced:\n",
        "        if state.in_lease and forced:\n",
        UNIT + "test_election.py::test_a_follower_that_hears_its_leader_ignores_candidates",
    ),
    Mutant(
        "a leader without a majority goes on",
        "raft.stepping",
        "if state.settings.check_quorum and not state.tracker.quorum_active(state.id):",
        "if not state.settings.check_quorum and not state.tracker.quorum_active(state.id):",
        UNIT + "test_election.py::test_a_leader_that_hears_no_majority_steps_down",
    ),
    Mutant(
        "a campaign under a membership that is over",
        "raft.election",
        "    if state.is_promotable and not state.log.has_unapplied_change():\n",
        "    if state.is_promotable:\n",
        UNIT + "test_election.py"
        "::test_a_node_with_a_committed_change_that_it_has_not_applied_does_not_campaign",
    ),
    Mutant(
        "two changes of membership at once",
        "raft.membership",
        "    if state.pending_conf_index > state.log.applied:\n",
        "    if state.pending_conf_index > state.log.last_index:\n",
        UNIT + "test_membership.py::test_a_second_change_waits_for_the_first",
    ),
    Mutant(
        "learners commit",
        "raft.tracker",
        "        return committed_index(self.voters, match)\n",
        "        return committed_index(tuple(match), match)\n",
        UNIT + "test_membership.py::test_a_learner_counts_for_nothing",
    ),
    Mutant(
        "a snapshot of the past is restored",
        "raft.replication",
        "    if snapshot.index <= state.log.committed:\n        return False\n",
        "",
        UNIT + "test_replication.py"
        "::test_a_snapshot_of_the_past_is_answered_with_what_is_committed",
    ),
    Mutant(
        "how much is committed is never kept",
        "raft.core",
        "        hard_state = state.hard_state if keep and",
        "        hard_state = HardState(state.term, state.vote, 1) if keep and",
        UNIT + "test_durability.py::test_how_much_is_committed_is_kept_along_with_the_next_entries",
    ),
    Mutant(
        "a change of membership is forgotten",
        "raft.core",
        "keep = bool(entries or snapshot or changes or _vote_differs(state, self._handed_state))",
        "keep = bool(entries or snapshot or _vote_differs(state, self._handed_state))",
        UNIT + "test_membership.py::test_a_change_that_holds_is_never_forgotten",
    ),
    Mutant(
        "the only voter is trusted although others may have been added",
        "raft.election",
        "    return alone and not state.log.has_change_after(state.log.applied)\n",
        "    return alone\n",
        UNIT + "test_membership.py"
        "::test_the_only_voter_is_not_trusted_when_another_may_have_been_added",
    ),
    Mutant(
        "checksums of the log are not compared",
        "frame_storage",
        "    return payload if _checksum(number, payload) == checksum else None\n",
        "    return payload if checksum is not None else None\n",
        UNIT + "test_wal_storage.py::test_a_flipped_bit_in_what_was_durable_stops_the_node",
    ),
    Mutant(
        "a torn end is not cut off",
        "raft.persistence.wal_storage",
        "            if self.cut_bytes:\n                os.ftruncate(self._fd, self._end)\n",
        "            self._end += self.cut_bytes\n",
        UNIT + "test_wal_storage.py::test_a_torn_last_frame_is_cut_off",
    ),
    Mutant(
        "a failed sync is tried again",
        "raft.persistence.wal_storage",
        '        """Refuse all further calls."""\n        self._failed = True\n',
        '        """Refuse all further calls."""\n',
        UNIT + "test_wal_storage.py::test_a_failed_sync_is_final",
    ),
    Mutant(
        "a new file of the log forgets the vote",
        "raft.persistence.wal_storage",
        "_encode(WalFrame(hard_state=self._hard_state)))\n",
        "_encode(WalFrame()))\n",
        UNIT + "test_wal_storage.py::test_a_vote_is_still_known_when_the_file_that_held_it_is_gone",
    ),
    Mutant(
        "an arrived snapshot is not checked",
        "raft.persistence.snapshot_storage",
        " and crc32c(data[HEADER.size :]) == checksum\n",
        "\n",
        UNIT + "test_storage.py::test_a_snapshot_that_was_damaged_on_its_way_is_refused",
    ),
    Mutant(
        "an arrived snapshot is not synced",
        "raft.persistence.snapshot_storage",
        "        sync(self._fd)\n        meta, _",
        "        meta, _",
        STORM,
    ),
    Mutant(
        "messages leave before they are stored",
        "raft.drivers.node_driver",
        "        self._send(*ready.messages)\n",
        "        self._send(*ready.messages, *ready.messages_after_append)\n",
        UNIT + "test_driver.py::test_an_acknowledgement_leaves_when_the_disk_has_answered",
    ),
    Mutant(
        "a lost place in the log is taken for success",
        "raft.drivers.pending_driver",
        "        if term == entry.term:\n",
        "        if term:\n",
        UNIT + "test_driver.py"
        "::test_a_proposal_that_lost_its_place_to_another_leader_is_refused_for_certain",
    ),
    Mutant(
        "a read does not wait until it is applied",
        "raft.drivers.node_driver",
        "                if self._core.state.log.applied < index:\n",
        "                if self._core.state.log.applied < 0:\n",
        UNIT + "test_driver.py"
        "::test_a_read_barrier_on_a_node_that_lags_waits_until_it_has_caught_up",
    ),
    Mutant(
        "a leader decides while the outcome of its own proposal is unknown",
        "mainstem.placement.raft_service",
        "        return log.applied == log.last_index\n",
        "        return log.applied <= log.last_index\n",
        PLACEMENT + "test_unknown_outcomes.py"
        "::test_a_topic_that_is_deleted_again_while_the_first_outcome_is_unknown_is_deleted_once",
    ),
    Mutant(
        "a leader decides as soon as what is committed is applied",
        "mainstem.placement.raft_service",
        "        return log.applied == log.last_index\n",
        "        return log.applied == log.committed\n",
        PLACEMENT + "test_unknown_outcomes.py"
        "::test_commands_that_wait_for_an_unknown_outcome_are_decided_once_it_is_known",
    ),
    Mutant(
        "a command that waited over a change of leadership is decided",
        "mainstem.placement.command_queue_driver",
        "            if pending.term != term:\n",
        "            if pending.term is not None and term is None:\n",
        PLACEMENT + "test_repeated_commands.py"
        "::test_a_command_that_was_taken_on_in_another_term_is_not_decided",
    ),
    Mutant(
        "a repeated command is decided again",
        "mainstem.placement.decision_driver",
        "    known = catalogue.decided.get(pending.id)\n",
        "    known = None\n",
        PLACEMENT + "test_repeated_commands.py"
        "::test_a_repeat_reaches_the_next_leader_and_is_answered_as_the_first_was",
    ),
    Mutant(
        "ids of decided commands are not in snapshots",
        "mainstem.placement.state.tables",
        "            decided=tuple(self.decided.values()),\n",
        "            decided=(),\n",
        PLACEMENT + "test_repeated_commands.py::test_ids_of_decisions_are_part_of_snapshots",
    ),
    Mutant(
        "a command is tried again under another id",
        "mainstem.placement.raft_service",
        "                return await self._try(command, command_id, give_up - loop.time())\n",
        "                return await self._try(command, uuid4().hex, give_up - loop.time())\n",
        PLACEMENT + "test_repeated_commands.py"
        "::test_a_command_whose_answer_was_lost_is_decided_once_and_answered",
    ),
    Mutant(
        "ids are written to a log that the release before must read",
        "mainstem.placement.changes.deduplication",
        "REMEMBERING_LEVEL: Final = 2\n",
        "REMEMBERING_LEVEL: Final = 1\n",
        PLACEMENT + "test_repeated_commands.py"
        "::test_without_the_level_an_unknown_outcome_is_not_tried_again",
    ),
    Mutant(
        "a repeated command is refused once its topic is deleted",
        "mainstem.placement.state.catalogue",
        "        for known in without_references(self, topic):\n",
        "        for known in ():\n",
        PLACEMENT + "test_repeated_commands.py"
        "::test_a_topic_that_is_deleted_while_the_sender_tries_again_was_created",
    ),
    Mutant(
        "a topic is created under the id of a deleted one",
        "mainstem.placement.changes.decisions",
        "    if command.id in tables.deleted:\n",
        "    if False:\n",
        PLACEMENT + "test_catalogue.py::test_the_id_of_a_deleted_topic_is_not_used_again",
    ),
    Mutant(
        "a command that was decided below the level is tried again above it",
        "mainstem.placement.raft_service",
        "                if not is_remembered:\n",
        "                if not can_be_repeated(self.catalogue, command):\n",
        PLACEMENT + "test_repeated_commands.py"
        "::test_a_command_that_was_decided_below_the_level_is_not_tried_again_above_it",
    ),
    Mutant(
        "a leader that was replaced without noticing refuses",
        "mainstem.placement.raft_service",
        "        if state.led_term != self._led_term:\n",
        "        if state.led_term == -1:\n",
        PLACEMENT + "test_unknown_outcomes.py"
        "::test_a_leader_that_was_replaced_without_noticing_refuses_nothing",
    ),
    Mutant(
        "a seal closes whichever range is open",
        "mainstem.placement.changes.applicability",
        "(end.epoch, end.index) == (stream.epoch, last.index) and",
        "stream.epoch >= 0 and",
        ANY_FACTS + "::test_a_seal_of_one_range_never_closes_the_next",
    ),
    Mutant(
        "partitions are added to whatever is there",
        "mainstem.placement.state.catalogue",
        "        if topic is None or fact.expected not in (UNSET, len(topic.streams)):\n",
        "        if topic is None:\n",
        ANY_FACTS + "::test_partitions_are_added_to_what_was_expected_and_not_to_what_is_there",
    ),
    Mutant(
        "a fact about a topic that is gone raises",
        "mainstem.placement.state.catalogue",
        "        topic = self._topics.get(fact.id)\n        if topic is None:\n"
        "            return False\n        for known",
        "        topic = self._topics[fact.id]\n        for known",
        PLACEMENT + "test_unknown_outcomes.py"
        "::test_a_cluster_starts_from_a_log_that_holds_a_fact_twice",
    ),
    Mutant(
        "an older election takes a stream back",
        "mainstem.placement.changes.applicability",
        "    return election.epoch > stream.epoch\n",
        "    return election.epoch >= 0\n",
        ANY_FACTS + "::test_an_older_election_takes_nothing_back",
    ),
    Mutant(
        "the last copy of a range is dropped",
        "mainstem.placement.changes.applicability",
        "len(others) >= copies_needed(stream, known)\n",
        "len(others) >= 0\n",
        ANY_FACTS + "::test_the_last_copy_of_a_range_is_never_dropped",
    ),
    Mutant(
        "listeners hear of facts that were ignored",
        "mainstem.placement.catalogue_replay",
        "            self._log_ignored(fact)\n            return\n",
        "            self._log_ignored(fact)\n",
        PLACEMENT + "test_unknown_outcomes.py"
        "::test_a_cluster_starts_from_a_log_that_holds_a_fact_twice",
    ),
    Mutant(
        "a writer hands over what its replicas lack",
        "mainstem.streams.writer.replication_driver",
        "    while machine.committed < machine.next_offset and stream.closed is None:\n",
        "    while machine.committed < 0 and stream.closed is None:\n",
        STREAMS + "::test_what_was_acknowledged_by_the_writer_alone_survives_planned_moves",
    ),
    Mutant(
        "a writer takes appends while it hands over",
        "mainstem.streams.writer.replication_driver",
        "        if self._handing_over_to is not None:\n            raise",
        "        if self._handing_over_to == -1:\n            raise",
        STREAMS + "::test_a_move_waits_for_replicas_and_is_given_up_when_they_do_not_answer",
    ),
)
