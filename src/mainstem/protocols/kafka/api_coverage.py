"""Kafka's client-facing APIs: which are served, in which versions, and which test shows it.

An API counts as served when a test with a third-party client has changed something through it and
read it back, or has read its response; that test is named. An API that is not served has a reason:
a handler that always refuses would advertise support that does not exist.
"""

from msgspec import Struct

from mainstem.protocols.kafka.api_table import served_apis
from mainstem.wire.kafka.client_facing import client_facing

_ADMIN = "tests/integration/admin/test_admin_clients.py::test_"
_CLUSTER = "tests/integration/admin/test_cluster_by_java.py::test_"
_METRICS = "tests/integration/admin/test_client_metrics.py::test_"
_CLIENTS = "tests/integration/kafka/test_real_clients.py::test_"
_TRANSACTIONS = "tests/integration/kafka/test_transactions.py::test_"
_GROUPS = "tests/integration/groups/test_group_members.py::test_"
_CONSUMERS = "tests/integration/groups/test_consumer_protocol.py::test_"
_JAVA_CONSUMERS = "tests/integration/groups/test_consumer_protocol_java.py::test_"
_SHARERS = "tests/integration/groups/test_share_groups.py::test_"
_JAVA_SHARERS = "tests/integration/groups/test_share_groups_java.py::test_"
_CONFLUENT = "tests/integration/admin/test_confluent_calls.py::test_"
_SECURITY = "tests/integration/security/test_admin_by_clients.py::test_"
_LOGINS = "tests/integration/security/test_clients.py::test_"

_A_CLIENT = f"{_CLIENTS}a_real_client_takes_the_node_for_kafka"
_TOOLS = f"{_CLIENTS}kafkas_own_tools_administer_the_node"
_MEMBERS = f"{_GROUPS}members_share_partitions_and_take_over_when_one_leaves"
_SHARE_TOOLS = f"{_JAVA_SHARERS}kafkas_tools_administer_share_groups"
_TOKENS = f"{_SECURITY}a_delegation_token_lives_as_kafkas_do"

PROOFS: dict[int, str] = {
    0: _A_CLIENT,
    1: _A_CLIENT,
    2: _A_CLIENT,
    3: _A_CLIENT,
    8: _A_CLIENT,
    9: _A_CLIENT,
    10: _A_CLIENT,
    11: _MEMBERS,
    12: _MEMBERS,
    13: _MEMBERS,
    14: _MEMBERS,
    15: _TOOLS,
    16: _TOOLS,
    17: f"{_LOGINS}librdkafka_logs_in",
    18: _A_CLIENT,
    19: f"{_ADMIN}confluent_creates_grows_and_deletes_topics",
    20: f"{_ADMIN}confluent_creates_grows_and_deletes_topics",
    21: f"{_ADMIN}confluent_deletes_records",
    22: _A_CLIENT,
    23: f"{_JAVA_CONSUMERS}members_join_leave_and_die",
    24: f"{_TRANSACTIONS}positions_move_with_the_transaction",
    25: f"{_TRANSACTIONS}positions_move_with_the_transaction",
    26: f"{_TRANSACTIONS}positions_move_with_the_transaction",
    28: f"{_TRANSACTIONS}positions_move_with_the_transaction",
    29: f"{_SECURITY}java_creates_describes_and_deletes_rules",
    30: f"{_SECURITY}java_creates_describes_and_deletes_rules",
    31: f"{_SECURITY}java_creates_describes_and_deletes_rules",
    32: f"{_ADMIN}confluent_changes_settings_of_a_topic",
    33: f"{_CONFLUENT}confluent_replaces_all_that_is_set_on_a_topic",
    34: f"{_CLUSTER}partitions_move_to_folders_that_there_are",
    35: _TOOLS,
    36: f"{_LOGINS}librdkafka_logs_in",
    37: f"{_ADMIN}confluent_creates_grows_and_deletes_topics",
    38: _TOKENS,
    39: _TOKENS,
    40: _TOKENS,
    41: _TOKENS,
    42: _TOOLS,
    43: f"{_CLUSTER}every_partition_is_led_by_its_preferred_replica",
    44: f"{_ADMIN}confluent_changes_settings_of_a_topic",
    45: f"{_CLUSTER}partitions_are_reassigned_to_nodes_that_there_are",
    46: f"{_CLUSTER}partitions_are_reassigned_to_nodes_that_there_are",
    47: _TOOLS,
    48: f"{_SECURITY}java_sets_lists_and_takes_away_quotas",
    49: f"{_SECURITY}java_sets_lists_and_takes_away_quotas",
    50: f"{_SECURITY}java_sets_describes_and_takes_away_a_password",
    51: f"{_SECURITY}java_sets_describes_and_takes_away_a_password",
    55: f"{_CLUSTER}the_quorum_is_this_node_and_its_log_grows",
    57: f"{_CLUSTER}features_are_switched_and_told_to_every_client",
    60: f"{_CLUSTER}a_node_that_is_gone_for_good_is_unregistered",
    61: f"{_TRANSACTIONS}a_transaction_that_nobody_knows_is_ended_by_an_administrator",
    64: f"{_CLUSTER}a_node_that_is_gone_for_good_is_unregistered",
    65: f"{_TRANSACTIONS}administrators_see_transactions_and_may_not_abort_living_ones",
    66: f"{_TRANSACTIONS}administrators_see_transactions_and_may_not_abort_living_ones",
    68: f"{_CONSUMERS}members_share_partitions_and_take_over_when_one_leaves",
    69: f"{_CLUSTER}groups_that_the_node_assigns_are_described",
    71: f"{_METRICS}java_pushes_what_it_is_asked_for",
    72: f"{_METRICS}java_pushes_what_it_is_asked_for",
    74: f"{_METRICS}java_pushes_what_it_is_asked_for",
    75: _TOOLS,
    76: f"{_SHARERS}members_of_a_group_share_the_records_of_one_partition",
    77: _SHARE_TOOLS,
    78: f"{_SHARERS}members_of_a_group_share_the_records_of_one_partition",
    79: f"{_SHARERS}a_member_that_leaves_gives_back_what_it_did_not_acknowledge",
    90: _SHARE_TOOLS,
    91: _SHARE_TOOLS,
    92: _SHARE_TOOLS,
}

_STREAMS = "groups of Kafka Streams are planned; its applications use classic groups until then"
_VOTERS = "who votes is decided by the leader as nodes join and leave (`mainstem node`)"

REASONS: dict[int, str] = {
    80: _VOTERS,
    81: _VOTERS,
    88: _STREAMS,
    89: _STREAMS,
}


class ApiCoverage(Struct, frozen=True):
    """One API. Exactly one of ``proof`` and ``reason`` is set; with a proof also the versions."""

    key: int
    name: str
    min_version: int | None = None
    max_version: int | None = None
    proof: str | None = None
    reason: str | None = None

    @property
    def is_served(self) -> bool:
        """Whether the API is advertised."""
        return self.max_version is not None


def scorecard() -> list[ApiCoverage]:
    """Every client-facing API, in the order of their keys."""
    served = served_apis()
    rows = []
    for key, name in client_facing().items():
        found = served.get(key)
        if found is None:
            rows.append(ApiCoverage(key, name, reason=REASONS[key]))
        else:
            rows.append(
                ApiCoverage(key, name, found.min_version, found.max_version, proof=PROOFS[key])
            )
    return rows
