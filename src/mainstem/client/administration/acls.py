"""Administration of access rules: which operations on which resources are allowed or denied.

Rules use words (``topic``, ``read``, ``prefixed``); the tables below give the numbers of Kafka's
protocol. ``glob`` is specific to Mainstem: other brokers refuse it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from mainstem.client import errors
from mainstem.client.cluster import Cluster
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.wire.kafka.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from mainstem.wire.kafka.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from mainstem.wire.kafka.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

ANY: Final = 1
CLUSTER_NAME: Final = "kafka-cluster"

RESOURCES: Final = {
    "topic": 2,
    "group": 3,
    "cluster": 4,
    "transactional_id": 5,
    "delegation_token": 6,
    "user": 7,
}
PATTERNS: Final = {"literal": 3, "prefixed": 4, "glob": 5}
PATTERN_FILTERS: Final = {"any": ANY, "match": 2, **PATTERNS}
OPERATIONS: Final = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
    "create_tokens": 13,
    "describe_tokens": 14,
    "two_phase_commit": 15,
}
PERMISSIONS: Final = {"deny": 2, "allow": 3}


class Acl(NamedTuple):
    """One rule. ``principal`` is ``User:alice``; ``User:*`` is any user, host ``*`` any host."""

    principal: str
    operation: str
    resource: str
    name: str
    pattern: str = "literal"
    host: str = "*"
    permission: str = "allow"


class AclRuleFilter(NamedTuple):
    """Selects rules; a field that is None matches any value.

    The pattern ``match`` finds, for a name, every rule that would apply to it.
    """

    principal: str | None = None
    operation: str | None = None
    resource: str | None = None
    name: str | None = None
    pattern: str = "any"
    host: str | None = None
    permission: str | None = None


class AclAdmin:
    """Administers access rules; reached through ``Admin.acls``."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def create(self, rules: Sequence[Acl]) -> None:
        """Adds rules; existing ones stay as they are.

        Raises:
            InvalidRequest: one of them is invalid; the others were added.
        """
        request = CreateAclsRequest([_creation(rule) for rule in rules])
        response: CreateAclsResponse = await self._cluster.call_controller(
            request, timeout_ms=self._timeout_ms
        )
        for rule, result in zip(rules, response.results, strict=True):
            subject = f"{rule.resource} {rule.name}"
            errors.check(result.error_code, result.error_message, subject=subject)

    async def find(self, rule_filter: AclRuleFilter) -> list[Acl]:
        """The rules that match a filter, by resource and principal."""

        async def attempt() -> list[Acl]:
            response: DescribeAclsResponse = await self._cluster.call_any(
                DescribeAclsRequest(*_numbers(rule_filter)), timeout_ms=self._timeout_ms
            )
            errors.check(response.error_code, response.error_message, subject="access rules")
            return [
                Acl(
                    rule.principal,
                    _word(OPERATIONS, rule.operation),
                    _word(RESOURCES, resource.resource_type),
                    resource.resource_name,
                    _word(PATTERNS, resource.pattern_type),
                    rule.host,
                    _word(PERMISSIONS, rule.permission_type),
                )
                for resource in response.resources
                for rule in resource.acls
            ]

        found = await self._cluster.retrying(attempt, timeout_ms=self._timeout_ms)
        return sorted(found, key=_place)

    async def delete(self, rule_filters: Sequence[AclRuleFilter]) -> list[Acl]:
        """Removes the rules that match the filters, and returns them."""
        request = DeleteAclsRequest(
            [DeleteAclsFilter(*_numbers(rule_filter)) for rule_filter in rule_filters]
        )
        response: DeleteAclsResponse = await self._cluster.call_controller(
            request, timeout_ms=self._timeout_ms
        )
        gone: dict[Acl, None] = {}
        for result in response.filter_results:
            errors.check(result.error_code, result.error_message, subject="access rules")
            for rule in result.matching_acls:
                errors.check(rule.error_code, rule.error_message, subject=rule.resource_name)
                gone[
                    Acl(
                        rule.principal,
                        _word(OPERATIONS, rule.operation),
                        _word(RESOURCES, rule.resource_type),
                        rule.resource_name,
                        _word(PATTERNS, rule.pattern_type),
                        rule.host,
                        _word(PERMISSIONS, rule.permission_type),
                    )
                ] = None
        return sorted(gone, key=_place)


def number_of(table: Mapping[str, int], word: str, what: str) -> int:
    """The number that a word stands for; case and the kind of dash do not matter.

    Raises:
        InvalidRequest: the word is unknown.
    """
    found = table.get(word.lower().replace("-", "_"))
    if found is None:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            f"{word!r} is not {what}",
            remedy=f"use {', '.join(table)}",
        )
    return found


def _creation(rule: Acl) -> AclCreation:
    return AclCreation(
        number_of(RESOURCES, rule.resource, "a kind of resource"),
        rule.name,
        number_of(PATTERNS, rule.pattern, "a kind of pattern"),
        rule.principal,
        rule.host,
        number_of(OPERATIONS, rule.operation, "an operation"),
        number_of(PERMISSIONS, rule.permission, "a permission"),
    )


def _numbers(
    rule_filter: AclRuleFilter,
) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    def number(table: Mapping[str, int], word: str | None, what: str) -> int:
        return ANY if word is None else number_of(table, word, what)

    return (
        number(RESOURCES, rule_filter.resource, "a kind of resource"),
        rule_filter.name,
        number_of(PATTERN_FILTERS, rule_filter.pattern, "a kind of pattern"),
        rule_filter.principal,
        rule_filter.host,
        number(OPERATIONS, rule_filter.operation, "an operation"),
        number(PERMISSIONS, rule_filter.permission, "a permission"),
    )


def _word(table: Mapping[str, int], number: int) -> str:
    """The word for a number; a newer broker may use numbers that have none here."""
    return next((word for word, its in table.items() if its == number), f"unknown {number}")


def _place(rule: Acl) -> tuple[str, ...]:
    return (rule.resource, rule.name, rule.pattern, rule.principal, rule.operation, rule.host)
