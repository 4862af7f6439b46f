"""Where a client is told to find a node.

A client that reached this node by some address can reach it there again, through a tunnel, a port
mapping of loopback or any of the machine's interfaces. So it is told the address it dialled, unless
the operator chose one to be told to everybody. Other nodes it finds at their listeners of the same
kind: a client that speaks TLS and logs in does so everywhere.
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
