"""Namespaces, resource names and rights of requests about queues and exchanges."""

from starlette.requests import Request

from mainstem.broker.api.queues import DEFAULT_EXCHANGE, DEFAULT_NAMESPACE, topic_for
from mainstem.protocols.rest.access import may, need_topic
from mainstem.protocols.rest.routing.parameters import TextParameter
from mainstem.security.authorisation.acl import Operation, ResourceType

NAMESPACE = TextParameter("namespace", "AMQP's virtual host; / by default.")


def namespace_of(request: Request) -> str:
    """The namespace that a request is about."""
    return NAMESPACE.of(request) or DEFAULT_NAMESPACE


def need_queue(request: Request, operation: Operation, name: str) -> None:
    """Refuse unless the caller may do that to a queue; its resource is ``queue.<name>``."""
    need_topic(request, operation, topic_for(namespace_of(request), f"queue.{name}"))


def need_exchange(request: Request, operation: Operation, name: str) -> None:
    """Refuse unless the caller may do that to an exchange; its resource is its topic."""
    if name != DEFAULT_EXCHANGE:
        need_topic(request, operation, topic_for(namespace_of(request), name))


def may_see(request: Request, name: str) -> bool:
    """Whether the caller may see a queue (``queue.<name>``) or an exchange."""
    if name == DEFAULT_EXCHANGE:
        return True
    resource = topic_for(namespace_of(request), name)
    return may(request, Operation.DESCRIBE, ResourceType.TOPIC, resource)
