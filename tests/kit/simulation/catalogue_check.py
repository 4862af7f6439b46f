"""Invariants of every catalogue after any replay, for tests and simulations."""

from mainstem.model.limits import COMMANDS_REMEMBERED_MAX
from mainstem.model.metadata import Topic
from mainstem.placement.state import chain
from mainstem.placement.state.catalogue import DELETED_REMEMBERED_MAX, Catalogue


def catalogue_violation(catalogue: Catalogue) -> str | None:
    """The first violated invariant of a catalogue; None if there is none."""
    topics = list(catalogue.topics())
    count = sum(len(topic.streams) for topic in topics)
    checks = (
        (catalogue.partition_count == count, f"partitions are miscounted, there are {count}"),
        (len({topic.name for topic in topics}) == len(topics), "two topics have one name"),
        (
            all(topic.id not in catalogue.deleted for topic in topics),
            "a deleted topic still exists",
        ),
        (len(catalogue.deleted) <= DELETED_REMEMBERED_MAX, "too many deleted topics are kept"),
        (len(catalogue.decided) <= COMMANDS_REMEMBERED_MAX, "too many decided commands are kept"),
        (Catalogue(catalogue.state()).state() == catalogue.state(), "a copy of it differs"),
    )
    flaws = (None if holds else flaw for holds, flaw in checks)
    return next(filter(None, (*flaws, *(_topic_flaw(catalogue, topic) for topic in topics))), None)


def _topic_flaw(catalogue: Catalogue, topic: Topic) -> str | None:
    if catalogue.topic(topic.name) is not topic or catalogue.topic_by_id(topic.id) is not topic:
        return f"{topic.name}: lookup by name or id returns another topic"
    if not topic.streams:
        return f"{topic.name} has no partitions"
    for place, stream in enumerate(topic.streams):
        if (stream.id.topic, stream.id.partition) != (topic.id, place):
            return f"{stream.id} is at index {place} of {topic.name}"
        if not all(known.replicas for known in stream.ranges):
            return f"{topic.name}-{place}: a range is on no node"
        if (found := chain.flaw(stream)) is not None:
            return f"{topic.name}-{place}: {found}"
    return None
