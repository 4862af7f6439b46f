"""Settings: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from mainstem.broker.api.configs import ConfigChange, ConfigsByName, ConfigValue
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import NodeId
from mainstem.model.topic_name import check_topic_name
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import NONE, kafka_code, kafka_message
from mainstem.security.authorisation.acl import Operation
from mainstem.wire.kafka.messages import alter_configs as replacing
from mainstem.wire.kafka.messages import incremental_alter_configs as altering
from mainstem.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from mainstem.wire.kafka.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32

SOURCES = {
    "topic": 1,
    "dynamic": 2,
    "dynamic_default": 3,
    "static": 4,
    "default": 5,
    "client_metrics": 7,
    "group": 8,
}
TYPES = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
Resource = replacing.AlterConfigsResource | altering.AlterConfigsResource
ResourceT = TypeVar("ResourceT", replacing.AlterConfigsResource, altering.AlterConfigsResource)
Outcome = tuple[int, str | None, int, str]  # error, message, type and name of the resource

NODE_DIGITS_MAX = 10
OPERATIONS = ("set", "delete", "append", "subtract")


# DescribeConfigs


def describe_configs(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Settings with their values and sources."""
    results = []
    # Deduplicated: a resource named twice has one result.
    unique = {(asked.resource_type, asked.resource_name): asked for asked in request.resources}
    for resource in unique.values():
        result = DescribeConfigsResult(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        try:
            _need(call, Operation.DESCRIBE_CONFIGS, resource)
            configs = _described(call, resource)
        except MainstemError as error:
            result.error_code = kafka_code(error)
            result.error_message = kafka_message(error)
        else:
            wanted = resource.configuration_keys
            result.configs = [
                _shown(config, request)
                for config in configs
                if wanted is None or config.name in wanted
            ]
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _described(call: Call, resource: DescribeConfigsResource) -> Sequence[ConfigValue]:
    topics = call.broker.topics
    if resource.resource_type == TOPIC:
        check_topic_name(resource.resource_name)
        return topics.configs.describe_topic(resource.resource_name)
    if resource.resource_type == BROKER:
        return topics.configs.describe_node(_node(resource.resource_name))
    return _named(call, resource.resource_type).describe(resource.resource_name)


def _shown(config: ConfigValue, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = config.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=config.name,
        value=None if config.sensitive else config.value,
        read_only=config.read_only,
        config_source=SOURCES[config.source],
        is_sensitive=config.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name, value, SOURCES[source]) for name, value, source in synonyms
        ],
        config_type=TYPES[config.type],
        documentation=config.documentation if request.include_documentation else None,
    )


# AlterConfigs and IncrementalAlterConfigs


async def alter_configs(
    call: Call, request: replacing.AlterConfigsRequest
) -> replacing.AlterConfigsResponse:
    """Replace all settings of each resource."""

    def change(resource: replacing.AlterConfigsResource) -> Awaitable[None]:
        return _replace(call, resource, validate_only=request.validate_only)

    outcomes = await _outcomes(request.resources, change)
    return replacing.AlterConfigsResponse(
        responses=[replacing.AlterConfigsResourceResponse(*outcome) for outcome in outcomes]
    )


async def incremental_alter_configs(
    call: Call, request: altering.IncrementalAlterConfigsRequest
) -> altering.IncrementalAlterConfigsResponse:
    """Change some settings of each resource."""

    def change(resource: altering.AlterConfigsResource) -> Awaitable[None]:
        return _alter(call, resource, validate_only=request.validate_only)

    outcomes = await _outcomes(request.resources, change)
    return altering.IncrementalAlterConfigsResponse(
        responses=[altering.AlterConfigsResourceResponse(*outcome) for outcome in outcomes]
    )


async def _replace(
    call: Call, resource: replacing.AlterConfigsResource, *, validate_only: bool
) -> None:
    _need(call, Operation.ALTER_CONFIGS, resource)
    topics, name = call.broker.topics, resource.resource_name
    configs = {config.name: config.value for config in resource.configs}
    if len(configs) != len(resource.configs):
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, "a config name appears more than once")
    if resource.resource_type == TOPIC:
        check_topic_name(name)
        await topics.configs.replace_topic(name, configs, validate_only=validate_only)
    elif resource.resource_type == BROKER:
        await topics.configs.replace_node(_node(name), configs, validate_only=validate_only)
    else:
        named = _named(call, resource.resource_type)
        await named.replace(name, configs, validate_only=validate_only)


async def _alter(
    call: Call, resource: altering.AlterConfigsResource, *, validate_only: bool
) -> None:
    _need(call, Operation.ALTER_CONFIGS, resource)
    topics, name = call.broker.topics, resource.resource_name
    changes = [_change(config) for config in resource.configs]
    if resource.resource_type == TOPIC:
        check_topic_name(name)
        await topics.configs.alter_topic(name, changes, validate_only=validate_only)
    elif resource.resource_type == BROKER:
        await topics.configs.alter_node(_node(name), changes, validate_only=validate_only)
    else:
        named = _named(call, resource.resource_type)
        await named.alter(name, changes, validate_only=validate_only)


def _named(call: Call, kind: int) -> ConfigsByName:
    """The settings of a type of resource that exists only as a name."""
    if kind == GROUP:
        return call.broker.topics.configs.groups
    if kind == CLIENT_METRICS:
        return call.broker.topics.configs.client_metrics
    raise InvalidRequest(
        ErrorCode.INVALID_REQUEST,
        f"resources of type {kind} have no settings",
        remedy=f"use topic ({TOPIC}), node ({BROKER}), client metrics ({CLIENT_METRICS}) or group "
        f"({GROUP})",
    )


def _need(call: Call, operation: Operation, resource: Resource | DescribeConfigsResource) -> None:
    """Refuse unless the client may do that to the settings of a topic, a group or the cluster."""
    if resource.resource_type == TOPIC:
        call.need_topic(operation, resource.resource_name)
    elif resource.resource_type == GROUP:
        call.need_group(operation, resource.resource_name)
    else:
        call.need_cluster(operation)


def _change(config: altering.AlterableConfig) -> ConfigChange:
    if not 0 <= config.config_operation < len(OPERATIONS):
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            f"unknown operation {config.config_operation} on {config.name}",
            remedy="0 set, 1 delete, 2 append, 3 subtract",
        )
    return ConfigChange(config.name, OPERATIONS[config.config_operation], config.value)


async def _outcomes(
    resources: Sequence[ResourceT], change: Callable[[ResourceT], Awaitable[None]]
) -> list[Outcome]:
    """Change resources in turn; one that is named twice is refused, as the order is undefined."""
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    outcomes: list[Outcome] = []
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            if times[kind, name] > 1:
                raise InvalidRequest(
                    ErrorCode.INVALID_REQUEST, "the request names the resource more than once"
                )
            await change(resource)
        except MainstemError as error:
            outcomes.append((kafka_code(error), kafka_message(error), kind, name))
        else:
            outcomes.append((NONE, None, kind, name))
    return outcomes


# ListConfigResources


def list_config_resources(
    call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Resources with settings. Version 0 lists client metrics only."""
    wanted = set(request.resource_types)
    if call.version == 0:
        wanted = {CLIENT_METRICS}
    elif not wanted:
        wanted = {TOPIC, BROKER, CLIENT_METRICS, GROUP}
    topics = call.broker.topics
    found = []
    if not call.may_cluster(Operation.DESCRIBE_CONFIGS):
        code = kafka_code(ErrorCode.CLUSTER_NOT_AUTHORIZED)
        return ListConfigResourcesResponse(error_code=code, config_resources=[])
    if TOPIC in wanted:
        found += [ConfigResource(topic.name, TOPIC) for topic in topics.all()]
    if BROKER in wanted:
        found += [ConfigResource(str(node.id), BROKER) for node in topics.nodes()]
    if CLIENT_METRICS in wanted:
        found += [ConfigResource(n, CLIENT_METRICS) for n in topics.configs.client_metrics.names()]
    if GROUP in wanted:
        found += [ConfigResource(name, GROUP) for name in topics.configs.groups.names()]
    return ListConfigResourcesResponse(config_resources=found)


def _node(name: str) -> NodeId | None:
    """Parse a node id; the empty name means all nodes."""
    if not name:
        return None
    if len(name) > NODE_DIGITS_MAX or not name.isascii() or not name.isdigit():
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, f"{name[:NODE_DIGITS_MAX]!r} is not a node id"
        )
    return NodeId(int(name))


SERVED = {
    32: ApiHandler(describe_configs, 1, 4),
    33: ApiHandler(alter_configs, 0, 2),
    44: ApiHandler(incremental_alter_configs, 0, 1),
    74: ApiHandler(list_config_resources, 0, 1),
}
