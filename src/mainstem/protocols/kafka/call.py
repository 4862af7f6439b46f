"""The context of one request, and the interface of its handler.

A handler is a function ``(call, request) -> response``, or an ``async`` one. It receives and
returns the version-independent messages of ``wire.kafka.messages`` and puts refusals into the
response's own error fields. Each handler module exports ``SERVED: dict[int, ApiHandler]``.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from mainstem.broker.api.broker import Broker
from mainstem.broker.api.security import Caller, Rights
from mainstem.protocols.kafka.login_service import KafkaLogin
from mainstem.security.authorisation.acl import CLUSTER_NAME, Operation, ResourceType
from mainstem.security.authorisation.authoriser import AllRights
from mainstem.security.principals import NOBODY, Identity
from mainstem.security.quotas import QuotaMeter, Quotas

EVERYTHING = AllRights()


class Peer(Struct):
    """The connection of a request, and its client.

    ``login`` is set on listeners that require one. ``listener`` is the name of the listener,
    ``advertised`` its advertised address. ``owed_ms`` is the throttle time of the client, caused
    by the quota ``owed_for``. ``shares_as`` identifies the connection to share groups, once it has
    used them.
    """

    address: str
    port: int
    dialled_host: str
    dialled_port: int
    client_id: str = ""
    software: str = ""
    identity: Identity = NOBODY
    rights: Rights = EVERYTHING
    login: KafkaLogin | None = None
    quotas: Quotas | None = None
    meter: QuotaMeter | None = None
    owed_ms: int = 0
    owed_for: str = ""
    advertised: tuple[str, int] | None = None
    listener: str = "PLAINTEXT"
    shares_as: object | None = None

    def shares(self) -> object:
        """The identity of the connection for share groups, which release its locks when it ends."""
        if self.shares_as is None:
            self.shares_as = object()
        return self.shares_as

    def authenticated(self, identity: Identity, rights: Rights) -> None:
        """Set identity and rights after a successful login."""
        self.identity = identity
        self.rights = rights
        self.meter = None

    def set_client_id(self, client_id: str) -> None:
        """Set the client id."""
        if client_id != self.client_id:
            self.client_id = client_id
            self.meter = None

    def charge(self, kind: str, amount: float) -> int:
        """Charge a quota; returns the throttle time in ms and applies it to the client."""
        quotas = self.quotas
        if quotas is None or not quotas.limited:
            return 0
        wait_ms = self.count(kind, amount)
        if wait_ms > self.owed_ms:
            self.owed_ms, self.owed_for = wait_ms, kind
        return wait_ms

    def count(self, kind: str, amount: float) -> int:
        """Charge a quota without throttling the client; returns the throttle time in ms."""
        quotas = self.quotas
        if quotas is None or not quotas.limited:
            return 0
        if self.meter is None:
            user = self.identity.principal.name
            self.meter = quotas.meter(user, self.client_id, self.address)
        return self.meter.charge(kind, amount)


class Call(Struct):
    """The context of a request for its handler."""

    api_key: int
    version: int
    client_id: str
    peer: Peer
    broker: Broker

    def may_topic(self, operation: Operation, name: str) -> bool:
        """Whether the client may do that to a topic."""
        return self.peer.rights.may(operation, ResourceType.TOPIC, name)

    def may_group(self, operation: Operation, name: str) -> bool:
        """Whether the client may do that to a group."""
        return self.peer.rights.may(operation, ResourceType.GROUP, name)

    def may_cluster(self, operation: Operation) -> bool:
        """Whether the client may do that to the cluster."""
        return self.peer.rights.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def need_topic(self, operation: Operation, name: str) -> None:
        """Refuse unless the client may do that to a topic."""
        self.peer.rights.need(operation, ResourceType.TOPIC, name)

    def need_group(self, operation: Operation, name: str) -> None:
        """Refuse unless the client may do that to a group."""
        self.peer.rights.need(operation, ResourceType.GROUP, name)

    def need_cluster(self, operation: Operation) -> None:
        """Refuse unless the client may do that to the cluster."""
        self.peer.rights.need(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def need_transaction(self, operation: Operation, name: str) -> None:
        """Refuse unless the client may do that with a transactional id."""
        self.peer.rights.need(operation, ResourceType.TRANSACTIONAL_ID, name)

    def operations(self, kind: ResourceType, name: str) -> int:
        """The operations that the client may do, as bits by number."""
        return self.peer.rights.operations(kind, name)

    @property
    def caller(self) -> Caller:
        """The requester, for operations that are recorded in the audit log."""
        return Caller(self.peer.identity, self.peer.address, self.peer.rights)


Handler = Callable[[Call, Any], Any | Awaitable[Any]]


class ApiHandler(Struct, frozen=True):
    """A handler and the versions it serves, both ends included."""

    handler: Handler
    min_version: int
    max_version: int
