"""Permissions of an AMQP client, with AMQP's error texts."""

from mainstem.broker.api.security import Rights
from mainstem.protocols.amqp.errors import ACCESS_REFUSED, ChannelRefusal
from mainstem.protocols.permissions import ClientPermissions
from mainstem.security.authorisation.acl import Operation


def amqp_permissions(rights: Rights, namespace: str, user: str) -> ClientPermissions:
    """Create the permissions of one channel; a refusal closes the channel."""

    def denied(operation: Operation, kind: str, name: str) -> ChannelRefusal:
        return ChannelRefusal(
            ACCESS_REFUSED,
            f"{operation.name.lower()} access to {kind} '{name}' in vhost "
            f"'{namespace}' refused for user '{user}'",
        )

    return ClientPermissions(rights, namespace, denied)
