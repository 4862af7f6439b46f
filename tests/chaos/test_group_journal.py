"""The journal of a member keeps what says why a group stands still, and not much of it."""

from tests.chaos.group_journal import LINE_CHARACTERS_MAX, LINES_MAX, GroupJournal


def test_lines_about_every_commit_are_left_out() -> None:
    journal = GroupJournal()
    journal.logger.debug("ASSIGNDONE [rdkafka#consumer-1] [thrd:main]: done")
    journal.logger.debug("HEARTBEAT [rdkafka#consumer-1] [thrd:main]: Not coordinator")
    journal.note("commit: no answer")
    [heartbeat, commit] = journal.text().splitlines()
    assert heartbeat.endswith("Not coordinator")
    assert commit.endswith("commit: no answer")


def test_only_the_last_lines_are_kept() -> None:
    journal = GroupJournal()
    for number in range(LINES_MAX + 1):
        journal.note(f"{number} {'x' * 1_000}")
    lines = journal.text().splitlines()
    assert len(lines) == LINES_MAX
    assert lines[0].split()[1] == "1"
    assert max(map(len, lines)) < LINE_CHARACTERS_MAX + 20
