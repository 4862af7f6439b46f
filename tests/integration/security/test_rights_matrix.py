"""Every endpoint, asked by somebody without rights, with just enough, with a deny, and by others.

The table names for each API what it takes. A new API that is served and not in the table fails.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.security import requests, share_requests
from tests.integration.security.kit import (
    ADMIN_PASSWORD,
    CLUSTER,
    REFUSALS,
    SecureNode,
    codes,
    rule,
    texts,
)
from tests.integration.security.requests import GROUP, TOPIC, TRANSACTION, Asked
from tests.integration.security.share_requests import SHARE_GROUP

from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.api_versions import ApiVersionsRequest

O = Operation  # noqa: E741 - the table below is read in columns
ON_TOPIC = (ResourceType.TOPIC, TOPIC)
ON_GROUP = (ResourceType.GROUP, GROUP)
ON_NEW_GROUP = (ResourceType.GROUP, f"{GROUP}-new")
ON_SHARE_GROUP = (ResourceType.GROUP, SHARE_GROUP)
ON_NEW_SHARE_GROUP = (ResourceType.GROUP, f"{SHARE_GROUP}-new")
ON_GONE_GROUP = (ResourceType.GROUP, f"{GROUP}-gone")
ON_TRANSACTION = (ResourceType.TRANSACTIONAL_ID, TRANSACTION)
CREATED, DELETED = "matrix-created", "matrix-deleted"

Need = tuple[Operation, tuple[ResourceType, str]]
Row = tuple[str, Asked | Callable[[], Asked], list[Need]]

# What is asked, and all the rights that it takes.
REFUSED: list[Row] = [
    ("produce", requests.produce, [(O.WRITE, ON_TOPIC)]),
    ("produce in a transaction", lambda: requests.produce(transactional_id=TRANSACTION),
     [(O.WRITE, ON_TOPIC), (O.WRITE, ON_TRANSACTION)]),
    ("fetch", requests.fetch, [(O.READ, ON_TOPIC)]),
    ("list offsets", requests.list_offsets, [(O.DESCRIBE, ON_TOPIC)]),
    ("metadata", requests.metadata, [(O.DESCRIBE, ON_TOPIC)]),
    ("commit offsets", requests.commit, [(O.READ, ON_GROUP), (O.READ, ON_TOPIC)]),
    ("fetch offsets", requests.fetch_offsets, [(O.DESCRIBE, ON_GROUP), (O.DESCRIBE, ON_TOPIC)]),
    ("find a group", requests.FIND_GROUP, [(O.DESCRIBE, ON_GROUP)]),
    ("find a transaction", requests.FIND_TRANSACTION, [(O.DESCRIBE, ON_TRANSACTION)]),
    ("join", requests.join, [(O.READ, ON_GROUP)]),
    ("heartbeat", requests.HEARTBEAT, [(O.READ, ON_GROUP)]),
    ("leave", requests.LEAVE, [(O.READ, ON_GROUP)]),
    ("sync", requests.SYNC, [(O.READ, ON_GROUP)]),
    ("describe a group", requests.DESCRIBE_GROUP, [(O.DESCRIBE, ON_GROUP)]),
    ("delete a group", requests.DELETE_GROUP, [(O.DELETE, ON_GONE_GROUP)]),
    ("delete offsets", requests.delete_offsets, [(O.DELETE, ON_GROUP), (O.READ, ON_TOPIC)]),
    ("consumer heartbeat", requests.consumer_heartbeat,
     [(O.READ, ON_NEW_GROUP), (O.DESCRIBE, ON_TOPIC)]),
    ("describe a consumer group", requests.CONSUMER_DESCRIBE, [(O.DESCRIBE, ON_GROUP)]),
    ("share heartbeat", share_requests.new_member,
     [(O.READ, ON_NEW_SHARE_GROUP), (O.DESCRIBE, ON_TOPIC)]),
    ("describe a share group", share_requests.DESCRIBE, [(O.DESCRIBE, ON_SHARE_GROUP)]),
    ("share fetch", share_requests.fetch, [(O.READ, ON_SHARE_GROUP), (O.READ, ON_TOPIC)]),
    ("share acknowledge", share_requests.ACKNOWLEDGE, [(O.READ, ON_SHARE_GROUP)]),
    ("describe share offsets", share_requests.offsets,
     [(O.DESCRIBE, ON_SHARE_GROUP), (O.DESCRIBE, ON_TOPIC)]),
    ("alter share offsets", share_requests.alter, [(O.READ, ON_SHARE_GROUP), (O.READ, ON_TOPIC)]),
    ("delete share offsets", share_requests.delete,
     [(O.DELETE, ON_SHARE_GROUP), (O.READ, ON_TOPIC)]),
    ("create a topic", lambda: requests.create_topic(CREATED),
     [(O.CREATE, (ResourceType.TOPIC, CREATED)),
      (O.DESCRIBE_CONFIGS, (ResourceType.TOPIC, CREATED))]),
    ("delete a topic", lambda: requests.delete_topic(DELETED),
     [(O.DELETE, (ResourceType.TOPIC, DELETED))]),
    ("delete records", requests.delete_records, [(O.DELETE, ON_TOPIC)]),
    ("add partitions", requests.grow, [(O.ALTER, ON_TOPIC)]),
    ("describe settings", requests.describe_configs, [(O.DESCRIBE_CONFIGS, ON_TOPIC)]),
    ("describe a node's settings", lambda: requests.describe_configs(4, "1"),
     [(O.DESCRIBE_CONFIGS, CLUSTER)]),
    ("alter settings", requests.alter_config, [(O.ALTER_CONFIGS, ON_TOPIC)]),
    ("replace settings", requests.replace_configs, [(O.ALTER_CONFIGS, ON_TOPIC)]),
    ("replace a node's settings", lambda: requests.replace_configs(4, "1"),
     [(O.ALTER_CONFIGS, CLUSTER)]),
    ("list settings", requests.LIST_CONFIG_RESOURCES, [(O.DESCRIBE_CONFIGS, CLUSTER)]),
    ("ends of epochs", requests.epochs, [(O.DESCRIBE, ON_TOPIC)]),
    ("partitions of topics", requests.TOPIC_PARTITIONS, [(O.DESCRIBE, ON_TOPIC)]),
    ("log folders", requests.DESCRIBE_LOG_DIRS, [(O.DESCRIBE, CLUSTER)]),
    ("idempotent producer", requests.INIT_IDEMPOTENT, [(O.IDEMPOTENT_WRITE, CLUSTER)]),
    ("idempotent writer", requests.INIT_IDEMPOTENT, [(O.WRITE, ON_TOPIC)]),
    ("transactional producer", requests.INIT_TRANSACTIONAL, [(O.WRITE, ON_TRANSACTION)]),
    ("two-phase producer", requests.INIT_TWO_PHASE,
     [(O.WRITE, ON_TRANSACTION), (O.TWO_PHASE_COMMIT, ON_TRANSACTION)]),
    ("partitions of a transaction", requests.add_partitions,
     [(O.WRITE, ON_TRANSACTION), (O.WRITE, ON_TOPIC)]),
    ("a group of a transaction", requests.ADD_OFFSETS,
     [(O.WRITE, ON_TRANSACTION), (O.READ, ON_GROUP)]),
    ("offsets in a transaction", requests.commit_in_transaction,
     [(O.WRITE, ON_TRANSACTION), (O.READ, ON_GROUP), (O.READ, ON_TOPIC)]),
    ("end a transaction", requests.END, [(O.WRITE, ON_TRANSACTION)]),
    ("write markers", requests.markers, [(O.CLUSTER_ACTION, CLUSTER)]),
    ("abort a hanging transaction", requests.markers, [(O.ALTER, CLUSTER)]),
    ("describe producers", requests.DESCRIBE_PRODUCERS, [(O.READ, ON_TOPIC)]),
    ("describe transactions", requests.DESCRIBE_TRANSACTIONS, [(O.DESCRIBE, ON_TRANSACTION)]),
    ("elect leaders", requests.elect, [(O.ALTER, CLUSTER)]),
    ("reassign partitions", requests.reassign, [(O.ALTER, CLUSTER)]),
    ("list reassignments", requests.LIST_REASSIGNMENTS, [(O.DESCRIBE, CLUSTER)]),
    ("move to a folder", requests.move, [(O.ALTER, CLUSTER)]),
    ("describe the quorum", requests.quorum, [(O.DESCRIBE, CLUSTER)]),
    ("update features", requests.features, [(O.ALTER, CLUSTER)]),
    ("unregister a node", requests.UNREGISTER, [(O.ALTER, CLUSTER)]),
    ("describe client metrics", lambda: requests.describe_configs(16, "s"),
     [(O.DESCRIBE_CONFIGS, CLUSTER)]),
    ("replace client metrics", lambda: requests.replace_configs(16, "s"),
     [(O.ALTER_CONFIGS, CLUSTER)]),
    ("describe rules", requests.DESCRIBE_ACLS, [(O.DESCRIBE, CLUSTER)]),
    ("create rules", requests.acl, [(O.ALTER, CLUSTER)]),
    ("delete rules", requests.delete_acls, [(O.ALTER, CLUSTER)]),
    ("describe quotas", requests.DESCRIBE_QUOTAS, [(O.DESCRIBE_CONFIGS, CLUSTER)]),
    ("alter quotas", requests.quota, [(O.ALTER_CONFIGS, CLUSTER)]),
    ("describe credentials", requests.DESCRIBE_SCRAM, [(O.DESCRIBE, CLUSTER)]),
    ("alter credentials", lambda: (requests.scram_upserts("matrix-user", "p"), None),
     [(O.ALTER, CLUSTER)]),
]  # fmt: skip

# What is answered without a refusal, but only with what the asker may see.
FILTERED: list[tuple[str, Asked, list[list[Need]], str]] = [
    ("all topics", requests.ALL_TOPICS, [[(O.DESCRIBE, ON_TOPIC)], [(O.READ, ON_TOPIC)]], TOPIC),
    ("all groups", requests.LIST_GROUPS, [[(O.DESCRIBE, ON_GROUP)], [(O.DESCRIBE, CLUSTER)]],
     GROUP),
    ("all transactions", requests.LIST_TRANSACTIONS, [[(O.DESCRIBE, ON_TRANSACTION)]],
     TRANSACTION),
]  # fmt: skip

# ApiVersions, the two of SASL, and DescribeCluster, which tells what Metadata tells anybody who may
# connect; delegation tokens, whose rules depend on whose they are (test_tokens); metrics, for which
# an operator may ask any client that connects.
FOR_EVERYBODY = {17, 18, 36, 60, 38, 39, 40, 41, 71, 72}

numbers = itertools.count()


def asked(row: Asked | Callable[[], Asked]) -> Asked:
    return row() if callable(row) else row


def key_of(request: Any) -> int:
    return codec.KEYS[type(request).__name__.removesuffix("Request")]


@pytest.fixture(scope="module", autouse=True)
def _furnished(secure_node: SecureNode) -> None:
    """The topics, the group and the transactional id of the table are there."""
    with secure_node.client() as admin:
        for name in (TOPIC, DELETED):
            admin.ask(*requests.create_topic(name))
        assert codes(admin.ask(*requests.commit())) == {0}
        assert codes(admin.ask(*requests.INIT_TRANSACTIONAL)) == {0}
        [topic] = admin.ask(*requests.metadata()).topics
        share_requests.TOPIC_IDS[TOPIC] = topic.topic_id
        for epoch in (0, -1):
            assert codes(admin.ask(*share_requests.beat(SHARE_GROUP, epoch))) == {0}


def somebody(node: SecureNode) -> str:
    name = f"matrix-{next(numbers)}"
    node.make_user(name)
    return name


IDS = [row[0] for row in REFUSED]


@pytest.mark.parametrize(("_", "row", "needs"), REFUSED, ids=IDS)
def test_without_rights_it_is_refused_and_the_last_missing_right_still_counts(
    secure_node: SecureNode, _: str, row: Asked | Callable[[], Asked], needs: list[Need]
) -> None:
    name = somebody(secure_node)
    with secure_node.client() as admin, secure_node.login(name) as client:
        for need in needs:
            assert codes(client.ask(*asked(row))) & REFUSALS, f"allowed before {need}"
            admin.allow(rule(name, *need))
        assert not codes(client.ask(*asked(row))) & REFUSALS


@pytest.mark.parametrize(("_", "row", "needs"), REFUSED, ids=IDS)
def test_a_deny_refuses_even_what_a_role_allows(
    secure_node: SecureNode, _: str, row: Asked | Callable[[], Asked], needs: list[Need]
) -> None:
    name = somebody(secure_node)
    with secure_node.client() as admin, secure_node.login(name) as client:
        for kind in (
            ResourceType.TOPIC,
            ResourceType.GROUP,
            ResourceType.TRANSACTIONAL_ID,
        ):
            admin.allow(rule(name, O.ALL, (kind, "*")))
        admin.allow(rule(name, O.ALL, CLUSTER))
        assert not codes(client.ask(*asked(row))) & REFUSALS
        for need in needs:
            admin.allow(rule(name, *need, deny=True))
        admin.allow(rule(name, O.ALL, CLUSTER, deny=True), rule(name, O.WRITE, ON_TOPIC, deny=True))
        if needs[0][0] is O.IDEMPOTENT_WRITE or row is requests.INIT_IDEMPOTENT:
            return  # whoever may write to any other topic keeps the right (KIP-679)
        assert codes(client.ask(*asked(row))) & REFUSALS


@pytest.mark.parametrize(("_", "row", "needs", "shown"), FILTERED, ids=[r[0] for r in FILTERED])
def test_lists_show_what_the_asker_may_see(
    secure_node: SecureNode, _: str, row: Asked, needs: list[list[Need]], shown: str
) -> None:
    for enough in needs:
        name = somebody(secure_node)
        with secure_node.client() as admin, secure_node.login(name) as client:
            before = client.ask(*row)
            assert shown not in texts(before)
            assert not codes(before) - {0}
            admin.allow(*(rule(name, *need) for need in enough))
            assert shown in texts(client.ask(*row))


@pytest.mark.parametrize("role", ["admin", "the operator"])
def test_who_may_everything_is_refused_nothing(secure_node: SecureNode, role: str) -> None:
    by_name = role == "admin"
    with secure_node.login("admin", ADMIN_PASSWORD) if by_name else secure_node.client() as client:
        for name, row, _ in REFUSED:
            assert not codes(client.ask(*asked(row))) & REFUSALS, name


def test_every_api_that_is_served_is_in_the_table(secure_node: SecureNode) -> None:
    covered = {key_of(asked(row)[0]) for _, row, _ in REFUSED}
    covered |= {key_of(row[0]) for _, row, _, _ in FILTERED}
    with secure_node.client() as client:
        served = {each.api_key for each in client.ask(ApiVersionsRequest(), 3).api_keys}
    assert served - covered - FOR_EVERYBODY == set()
    assert covered <= served


def test_a_refused_topic_looks_the_same_whether_it_is_there_or_not(
    secure_node: SecureNode,
) -> None:
    name = somebody(secure_node)
    with secure_node.login(name) as client:
        for make in (requests.produce, requests.fetch, requests.metadata):
            there, absent = (client.ask(*make(topic)) for topic in (TOPIC, "matrix-absent"))
            assert codes(there) == codes(absent)


def test_what_a_client_is_told_it_may_do_is_what_it_may_do(secure_node: SecureNode) -> None:
    name = somebody(secure_node)
    request, _ = requests.metadata()
    assert hasattr(request, "include_topic_authorized_operations")
    request.include_topic_authorized_operations = True
    with secure_node.client() as admin, secure_node.login(name) as client:
        admin.allow(rule(name, O.WRITE, ON_TOPIC))
        [topic] = client.ask(request, 10).topics
        assert topic.topic_authorized_operations == 1 << O.WRITE | 1 << O.DESCRIBE
