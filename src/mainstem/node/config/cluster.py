"""The settings of cluster membership, a part of the tree in ``config``."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

PEER_PORT = 9094


class ClusterSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cluster membership. A node without a peer port and without ``join`` is a cluster of one."""

    peer_host: Annotated[
        str, Meta(min_length=1, description="Address where other nodes reach this one.")
    ] = "127.0.0.1"
    peer_port: Annotated[
        Annotated[int, Meta(ge=0, le=65535)] | None,
        Meta(
            description="Port for other nodes; 0 picks a free one. Set it so that others can join "
            "this node; with `join` it is 9094 unless set."
        ),
    ] = None
    advertised_host: Annotated[
        str | None,
        Meta(description="Host that other nodes connect to, if they cannot use peer_host."),
    ] = None
    join: Annotated[
        tuple[str, ...],
        Meta(description="Nodes (host:port) of the cluster to join."),
    ] = ()
    secret_file: Annotated[
        str | None,
        Meta(
            description="File with the cluster's secret, one per line, the current one first. "
            "Unset: cluster.secret in the data folder, which the first node creates."
        ),
    ] = None
    tls: Annotated[
        bool,
        Meta(
            description="Use TLS between nodes. Both sides present the certificate of the tls "
            "section, which must name the advertised host."
        ),
    ] = False
    tls_ca_file: Annotated[
        str | None,
        Meta(
            description="PEM file with the authorities that sign the certificates of nodes. Unset: "
            "tls.client_ca_file."
        ),
    ] = None
    machine: Annotated[
        str | None,
        Meta(
            description="Name of the machine: replicas of a partition go to different ones. Set "
            "it where several nodes on one machine should count as separate machines."
        ),
    ] = None
    preset: Annotated[
        Literal["normal", "fast"],
        Meta(
            description="How soon an unreachable node counts as dead: 1.5 s, or (fast) 0.5 s on "
            "networks and disks that never stall."
        ),
    ] = "normal"
