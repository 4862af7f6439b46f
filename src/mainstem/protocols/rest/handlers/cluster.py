"""The cluster: its nodes and ranges, draining and rebalancing."""

from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from mainstem.broker.api.cluster import NodeRow, RangeRow
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import NodeId
from mainstem.protocols.rest.access import Right
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.responses import json_answer
from mainstem.protocols.rest.routing.operation import Address, RestOperation
from mainstem.protocols.rest.routing.parameters import TextParameter
from mainstem.protocols.rest.routing.security_routes import SEE_CLUSTER
from mainstem.security.authorisation.acl import Operation

TOPIC = TextParameter("topic", "Only the ranges of this topic.")
_ALTER = Right(Operation.ALTER)


class ClusterAnswer(Struct, frozen=True, kw_only=True):
    """The cluster as a whole."""

    cluster_id: str
    leader: Annotated[int, Meta(description="Node id of the placement leader; -1 if none.")]
    term: Annotated[int, Meta(description="Raft term of the catalogue.")]
    voters: Annotated[list[int], Meta(description="The nodes that vote on the catalogue.")]
    nodes: list[NodeRow]
    ranges: Annotated[dict[str, int], Meta(description="Number of ranges in each state.")]
    moving: Annotated[int, Meta(description="Partitions being moved to other nodes.")]


class Moves(Struct, frozen=True):
    """The number of partitions that are now being moved."""

    moves: int


class NodeChanged(Struct, frozen=True):
    """The new state of a node."""

    node: int
    status: str


async def get_cluster(site: HandlerContext, request: Request) -> Response:
    """GET /v1/cluster."""
    found = site.broker.cluster.overview()
    return json_answer(
        ClusterAnswer(
            cluster_id=site.broker.topics.cluster_id(),
            leader=found.leader,
            term=found.term,
            voters=[int(node) for node in found.voters],
            nodes=list(found.nodes),
            ranges=found.states,
            moving=found.moving,
        )
    )


async def get_nodes(site: HandlerContext, request: Request) -> Response:
    """GET /v1/cluster/nodes."""
    return json_answer(list(site.broker.cluster.overview().nodes))


async def get_ranges(site: HandlerContext, request: Request) -> Response:
    """GET /v1/cluster/ranges."""
    return json_answer(list(site.broker.cluster.ranges(TOPIC.of(request) or None)))


async def rebalance(site: HandlerContext, request: Request) -> Response:
    """POST /v1/cluster/rebalance: distribute partitions evenly."""
    return json_answer(Moves(await site.broker.cluster.rebalance()))


async def drain_node(site: HandlerContext, request: Request) -> Response:
    """PUT /v1/cluster/nodes/{node}/drain."""
    node = _node(request)
    await site.broker.cluster.drain(node, on=True)
    return json_answer(_changed(site, node))


async def use_node(site: HandlerContext, request: Request) -> Response:
    """DELETE /v1/cluster/nodes/{node}/drain."""
    node = _node(request)
    await site.broker.cluster.drain(node, on=False)
    return json_answer(_changed(site, node))


async def remove_node(site: HandlerContext, request: Request) -> Response:
    """DELETE /v1/cluster/nodes/{node}: remove a node permanently."""
    node = _node(request)
    await site.broker.cluster.unregister(node)
    return json_answer(NodeChanged(node, "removed"))


def _changed(site: HandlerContext, node: NodeId) -> NodeChanged:
    rows = site.broker.cluster.overview().nodes
    return NodeChanged(node, next(row.status for row in rows if row.node == node))


def _node(request: Request) -> NodeId:
    text = request.path_params["node"]
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise InvalidRequest(ErrorCode.UNKNOWN_NODE, "a node id is a number", subject=text[:100])
    return NodeId(int(text))


CLUSTER_ADDRESSES: tuple[Address, ...] = (
    Address(
        "/v1/cluster",
        {
            "GET": RestOperation(
                handler=get_cluster,
                right=SEE_CLUSTER,
                summary="Describe the cluster: nodes, leader, number of ranges in each state.",
                answer=ClusterAnswer,
            )
        },
    ),
    Address(
        "/v1/cluster/nodes",
        {
            "GET": RestOperation(
                handler=get_nodes,
                right=SEE_CLUSTER,
                summary="List nodes and what they hold.",
                answer=list[NodeRow],
            )
        },
    ),
    Address(
        "/v1/cluster/nodes/{node}",
        {
            "DELETE": RestOperation(
                handler=remove_node,
                right=_ALTER,
                summary="Remove a node that will not come back and writes no partition.",
                answer=NodeChanged,
                refusals=(403, 404),
            )
        },
    ),
    Address(
        "/v1/cluster/nodes/{node}/drain",
        {
            "PUT": RestOperation(
                handler=drain_node,
                right=_ALTER,
                summary="Drain a node: move all partitions off it.",
                answer=NodeChanged,
                refusals=(403, 404),
            ),
            "DELETE": RestOperation(
                handler=use_node,
                right=_ALTER,
                summary="End the drain of a node: it may hold partitions again.",
                answer=NodeChanged,
                refusals=(403, 404),
            ),
        },
    ),
    Address(
        "/v1/cluster/ranges",
        {
            "GET": RestOperation(
                handler=get_ranges,
                right=SEE_CLUSTER,
                summary="List ranges and the nodes that hold them.",
                answer=list[RangeRow],
                parameters=(TOPIC,),
            )
        },
    ),
    Address(
        "/v1/cluster/rebalance",
        {
            "POST": RestOperation(
                handler=rebalance,
                right=_ALTER,
                summary="Distribute partitions evenly over the nodes.",
                answer=Moves,
                refusals=(403,),
            )
        },
    ),
)
