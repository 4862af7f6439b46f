"""Every Kafka API this node serves, with its handler and versions."""

from typing import NoReturn

from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.handlers import (
    client_metrics,
    cluster,
    configs,
    quorum,
    replicas,
    topics,
    versions,
)
from mainstem.protocols.kafka.handlers.coordination import (
    consumer_groups,
    coordinators,
    group_offsets,
    groups,
    producers,
    share_groups,
    share_offsets,
    transaction_admin,
    transactions,
)
from mainstem.protocols.kafka.handlers.records import fetch, offsets, produce_shape, share_fetch
from mainstem.protocols.kafka.handlers.security import (
    acls,
    client_quotas,
    delegation_tokens,
    sasl,
    scram_credentials,
)


def _has_its_own_path(call: Call, request: object) -> NoReturn:
    raise AssertionError(f"API {call.api_key} is served by the session itself")


def served_apis() -> dict[int, ApiHandler]:
    """Handlers by api key; exactly these are advertised."""
    served: dict[int, ApiHandler] = {
        produce_shape.API_KEY: ApiHandler(_has_its_own_path, 3, 13),
        fetch.API_KEY: ApiHandler(_has_its_own_path, 4, 17),
    }
    for module in (
        acls,
        client_metrics,
        client_quotas,
        cluster,
        configs,
        consumer_groups,
        coordinators,
        delegation_tokens,
        group_offsets,
        groups,
        offsets,
        producers,
        quorum,
        replicas,
        sasl,
        scram_credentials,
        share_fetch,
        share_groups,
        share_offsets,
        topics,
        transaction_admin,
        transactions,
    ):
        served.update(module.SERVED)
    served[versions.API_KEY] = ApiHandler(
        versions.api_versions(served), versions.MIN_VERSION, versions.MAX_VERSION
    )
    return served
