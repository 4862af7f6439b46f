"""Access rules: DescribeAcls, CreateAcls, DeleteAcls."""

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

from mainstem.broker.api.security import AclFilter, AclRule
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code, kafka_message
from mainstem.security.authorisation.acl import (
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_rule,
)
from mainstem.wire.kafka.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from mainstem.wire.kafka.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from mainstem.wire.kafka.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

RULES_PER_REQUEST_MAX = 10_000

NumberT = TypeVar("NumberT", bound=IntEnum)


def describe_acls(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """List the rules that match a filter, grouped by resource."""
    try:
        call.need_cluster(Operation.DESCRIBE)
        found = call.broker.security.rules.matching(_filter(request))
    except MainstemError as error:
        return DescribeAclsResponse(
            error_code=kafka_code(error), error_message=kafka_message(error), resources=[]
        )
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for rule in found:
        key = (rule.resource_type, rule.name, rule.pattern_type)
        resource = resources.setdefault(key, DescribeAclsResource(*key, acls=[]))
        resource.acls.append(
            AclDescription(rule.principal, rule.host, rule.operation, rule.permission)
        )
    return DescribeAclsResponse(resources=list(resources.values()))


async def create_acls(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """Add rules; an invalid rule does not prevent the others from being added."""
    results = [AclCreationResult() for _ in request.creations]
    try:
        call.need_cluster(Operation.ALTER)
        if len(request.creations) > RULES_PER_REQUEST_MAX:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST, f"{len(request.creations)} rules in one request"
            )
    except MainstemError as error:
        return CreateAclsResponse(results=_refused(results, error))
    good: list[tuple[AclRule, AclCreationResult]] = []
    for creation, result in zip(request.creations, results, strict=True):
        try:
            good.append((_rule(creation), result))
        except MainstemError as error:
            _refused([result], error)
    try:
        if good:
            await call.broker.security.rules.create(call.caller, [rule for rule, _ in good])
    except MainstemError as error:
        _refused((result for _, result in good), error)
    return CreateAclsResponse(results=results)


async def delete_acls(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Delete the rules that match the filters, and return them."""
    results = [DeleteAclsFilterResult(matching_acls=[]) for _ in request.filters]
    good: list[tuple[AclFilter, DeleteAclsFilterResult]] = []
    for wanted, result in zip(request.filters, results, strict=True):
        try:
            call.need_cluster(Operation.ALTER)
            good.append((_filter(wanted), result))
        except MainstemError as error:
            result.error_code, result.error_message = kafka_code(error), kafka_message(error)
    try:
        filters = [wanted for wanted, _ in good]
        found = await call.broker.security.rules.delete(call.caller, filters) if good else []
    except MainstemError as error:
        for _, result in good:
            result.error_code, result.error_message = kafka_code(error), kafka_message(error)
        return DeleteAclsResponse(filter_results=results)
    for (_, result), rules in zip(good, found, strict=True):
        result.matching_acls = [_matching(rule) for rule in rules]
    return DeleteAclsResponse(filter_results=results)


def _rule(creation: AclCreation) -> AclRule:
    rule = AclRule(
        _number(ResourceType, creation.resource_type),
        _number(PatternType, creation.resource_pattern_type),
        creation.resource_name,
        creation.principal,
        creation.host,
        _number(Operation, creation.operation),
        _number(Permission, creation.permission_type),
    )
    check_rule(rule)
    return rule


def _filter(request: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    wanted = AclFilter(
        _number(ResourceType, request.resource_type_filter),
        _number(PatternType, request.pattern_type_filter),
        request.resource_name_filter,
        request.principal_filter,
        request.host_filter,
        _number(Operation, request.operation),
        _number(Permission, request.permission_type),
    )
    parts = (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission)
    if any(part == 0 for part in parts):
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, "a field of the filter is UNKNOWN")
    return wanted


def _number(kind: type[NumberT], number: int) -> NumberT:
    try:
        return kind(number)
    except ValueError:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, f"{number} is not a {kind.__name__}"
        ) from None


def _matching(rule: AclRule) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=rule.resource_type,
        resource_name=rule.name,
        pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def _refused(results: Iterable[AclCreationResult], error: MainstemError) -> list[AclCreationResult]:
    refused = list(results)
    for result in refused:
        result.error_code, result.error_message = kafka_code(error), kafka_message(error)
    return refused


SERVED = {
    29: ApiHandler(describe_acls, 1, 3),
    30: ApiHandler(create_acls, 1, 3),
    31: ApiHandler(delete_acls, 1, 3),
}
