"""Administration of quotas: rate limits of users, client ids and addresses.

An entity is a mapping from its kind (``user``, ``client-id``, ``ip``) to a name; the name None
is the default of that kind, for all without a limit of their own.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from mainstem.client import errors
from mainstem.client.cluster import Cluster
from mainstem.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from mainstem.wire.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

ENTITY_KINDS: Final = ("user", "client-id", "ip")
_EXACT, _DEFAULT = 0, 1

Entity = Mapping[str, str | None]


class Quota(Struct, frozen=True):
    """The limits of one entity."""

    entity: dict[str, str | None]
    limits: dict[str, float]


class QuotaAdmin:
    """Administers quotas; reached through ``Admin.quotas``."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def find(self, entity: Entity | None = None, *, strict: bool = False) -> list[Quota]:
        """Entities with limits that have these parts (``strict``: and no others)."""
        components = [
            ComponentData(kind, _DEFAULT if name is None else _EXACT, name)
            for kind, name in (entity or {}).items()
        ]

        async def attempt() -> list[Quota]:
            response: DescribeClientQuotasResponse = await self._cluster.call_any(
                DescribeClientQuotasRequest(components, strict), timeout_ms=self._timeout_ms
            )
            errors.check(response.error_code, response.error_message, subject="quotas")
            return [
                Quota(
                    {part.entity_type: part.entity_name for part in entry.entity},
                    {value.key: value.value for value in entry.values},
                )
                for entry in response.entries or []
            ]

        found = await self._cluster.retrying(attempt, timeout_ms=self._timeout_ms)
        return sorted(found, key=_place)

    async def alter(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Sets limits of an entity; None removes one.

        Raises:
            InvalidRequest: the entity or a limit is invalid.
        """
        entry = RequestEntryData(
            [RequestEntityData(kind, name) for kind, name in entity.items()],
            [OpData(name, value or 0.0, value is None) for name, value in changes.items()],
        )
        response: AlterClientQuotasResponse = await self._cluster.call_controller(
            AlterClientQuotasRequest([entry]), timeout_ms=self._timeout_ms
        )
        for answer in response.entries:
            errors.check(answer.error_code, answer.error_message, subject=entity_text(entity))


def entity_text(entity: Entity) -> str:
    """An entity as text: ``user=alice client-id=app``; a default has no name."""
    return " ".join(kind if name is None else f"{kind}={name}" for kind, name in entity.items())


def _place(quota: Quota) -> list[tuple[str, str]]:
    return [(kind, name or "") for kind, name in quota.entity.items()]
