"""The advertised address of a node for one client.

A client that reached this node by some address can reach it there again, through a tunnel, a port
mapping of loopback or any of the machine's interfaces. So the advertised address is the one that
the client connected to, unless the operator configured one. Other nodes are advertised with their
listener of the same name: a client that uses TLS and SASL does so on all nodes.
"""

from mainstem.model.metadata import Node
from mainstem.protocols.kafka.call import Call

_MAPPED = "::ffff:"  # an IPv4 client on a socket that serves both families


def reached_at(call: Call, node: Node) -> tuple[str, int]:
    """Host and port of ``node`` for this client."""
    if call.peer.advertised is not None and node.id == call.broker.node.id:
        return call.peer.advertised
    if node.id != call.broker.node.id:
        for kind, host, port in node.listeners:
            if kind == call.peer.listener:
                return host, port
        return node.host, node.port
    if node.advertised:
        return node.host, node.port
    peer = call.peer
    host = peer.dialled_host
    return (host.removeprefix(_MAPPED) if "." in host else host), peer.dialled_port
