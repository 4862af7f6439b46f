"""Names of deleted topics that no client has requested since. Pure.

Kafka answers the first Metadata request for a deleted topic with an error, even if it re-creates
the topic, so that clients drop their cached metadata of it.
"""

from mainstem.model.limits import DELETED_NAMES_REMEMBERED_MAX
from mainstem.placement.changes.commands import AnyFact, TopicCreated, TopicDeleted


class DeletedTopics:
    """Keeps the names of deleted topics until a client requests them.

    Beyond the limit, the oldest names are dropped.
    """

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def on_fact(self, fact: AnyFact) -> None:
        """Note a deleted topic; drop one that was created again."""
        if isinstance(fact, TopicDeleted):
            self._names[fact.name] = None
            if len(self._names) > DELETED_NAMES_REMEMBERED_MAX:
                del self._names[next(iter(self._names))]
        elif isinstance(fact, TopicCreated):
            self._names.pop(fact.name, None)

    def take(self, name: str) -> bool:
        """Whether a topic of that name was deleted and no client was informed yet: true once."""
        if name not in self._names:
            return False
        del self._names[name]
        return True
