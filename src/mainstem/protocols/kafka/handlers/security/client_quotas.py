"""Client quotas: DescribeClientQuotas, AlterClientQuotas."""

from mainstem.broker.api.security import QuotaEntry
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code, kafka_message
from mainstem.security.authorisation.acl import Operation
from mainstem.security.quotas import ADDRESS, CLIENT, USER, entity_of
from mainstem.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)
from mainstem.wire.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT, DEFAULT, ANY = 0, 1, 2
ENTRIES_PER_REQUEST_MAX = 10_000


def describe_client_quotas(
    call: Call, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """The entities that match every component, with their limits."""
    try:
        call.need_cluster(Operation.DESCRIBE_CONFIGS)
        wanted = _components(request)
    except MainstemError as error:
        return DescribeClientQuotasResponse(
            error_code=kafka_code(error), error_message=kafka_message(error), entries=None
        )
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(kind, name) for kind, name in entry.entity],
                values=[ValueData(name, value) for name, value in sorted(entry.limits.items())],
            )
            for entry in call.broker.security.limits.all()
            if _matches(entry, wanted, strict=request.strict)
        ]
    )


def _components(request: DescribeClientQuotasRequest) -> dict[str, ComponentData]:
    wanted = {component.entity_type: component for component in request.components}
    if len(wanted) != len(request.components):
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, "a filter names a type of entity twice")
    for component in request.components:
        exact = component.match_type == EXACT and component.match is not None
        if not exact and (component.match_type not in (DEFAULT, ANY) or component.match):
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST, f"unknown match type {component.match_type}"
            )
        if component.entity_type not in (USER, CLIENT, ADDRESS):
            raise InvalidRequest(
                ErrorCode.UNSUPPORTED_VERSION, f"unknown entity type {component.entity_type[:40]!r}"
            )
    return wanted


def _matches(entry: QuotaEntry, wanted: dict[str, ComponentData], *, strict: bool) -> bool:
    parts = dict(entry.entity)
    if strict and parts.keys() != wanted.keys():
        return False
    for kind, component in wanted.items():
        if kind not in parts:
            return False
        name = parts[kind]
        if component.match_type == EXACT and name != component.match:
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return True


async def alter_client_quotas(
    call: Call, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Change limits, entity by entity."""
    response = AlterClientQuotasResponse(entries=[])
    for entry in request.entries:
        answer = ResponseEntryData(
            entity=[ResponseEntityData(part.entity_type, part.entity_name) for part in entry.entity]
        )
        response.entries.append(answer)
        try:
            call.need_cluster(Operation.ALTER_CONFIGS)
            if len(request.entries) > ENTRIES_PER_REQUEST_MAX:
                raise InvalidRequest(ErrorCode.INVALID_REQUEST, "too many entities in one request")
            await _alter(call, entry, validate_only=request.validate_only)
        except MainstemError as error:
            answer.error_code, answer.error_message = kafka_code(error), kafka_message(error)
    return response


async def _alter(call: Call, entry: RequestEntryData, *, validate_only: bool) -> None:
    changes = {change.key: None if change.remove else change.value for change in entry.ops}
    if len(changes) != len(entry.ops):
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, "a limit is changed twice")
    await call.broker.security.limits.alter(
        call.caller,
        entity_of((part.entity_type, part.entity_name) for part in entry.entity),
        changes,
        validate_only=validate_only,
    )


SERVED = {
    48: ApiHandler(describe_client_quotas, 0, 1),
    49: ApiHandler(alter_client_quotas, 0, 1),
}
