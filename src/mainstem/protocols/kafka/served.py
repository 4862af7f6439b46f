"""Every Kafka API this node serves, with its handler and versions."""

from typing import NoReturn

from mainstem.protocols.kafka.call import Call, Served
from mainstem.protocols.kafka.handlers import (
    acls,
    client_metrics,
    client_quotas,
    cluster,
    configs,
    consumer_groups,
    coordinators,
    delegation_tokens,
    fetch,
    group_offsets,
    groups,
    offsets,
    produce_shape,
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
    versions,
)


def _has_its_own_path(call: Call, request: object) -> NoReturn:
    raise AssertionError(f"API {call.api_key} is served by the session itself")


def served_apis() -> dict[int, Served]:
    """Key to handler; what is in here is advertised, nothing else."""
    served: dict[int, Served] = {
        produce_shape.API_KEY: Served(_has_its_own_path, 3, 13),
        fetch.API_KEY: Served(_has_its_own_path, 4, 17),
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
    served[versions.API_KEY] = Served(
        versions.api_versions(served), versions.MIN_VERSION, versions.MAX_VERSION
    )
    return served
