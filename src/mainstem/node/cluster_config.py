"""The settings of a node among nodes, a part of the tree in ``config``."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

PEER_PORT = 9094


class ClusterSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How this node meets others. A node without a peer port and without ``join`` stays alone."""

    peer_host: Annotated[
        str, Meta(min_length=1, description="Address where other nodes reach this one.")
    ] = "127.0.0.1"
    peer_port: Annotated[
        Annotated[int, Meta(ge=0, le=65535)] | None,
        Meta(
            description="Port for other nodes; 0 picks a free one. Set it to let others join this "
            "node; with `join` it is 9094 unless set."
        ),
    ] = None
    advertised_host: Annotated[
        str | None,
        Meta(description="Host that other nodes dial, where peer_host is not one they can dial."),
    ] = None
    join: Annotated[
        tuple[str, ...],
        Meta(description="Nodes, as host:port, through which this one becomes part of a cluster."),
    ] = ()
    secret_file: Annotated[
        str | None,
        Meta(
            description="File with the cluster's secret, one per line, the present one first. "
            "Unset: cluster.secret in the data folder, which the first node makes."
        ),
    ] = None
    tls: Annotated[
        bool,
        Meta(
            description="Encrypt what nodes say to each other. Both sides show the certificate of "
            "the tls section, which names the host that others dial."
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
            description="Name of the machine: replicas of a partition go to different ones. Set it "
            "where several nodes of one machine are to count as machines of their own."
        ),
    ] = None
    preset: Annotated[
        Literal["normal", "fast"],
        Meta(
            description="How soon a silent node counts as dead: 1.5 s, or (fast) 0.5 s on networks "
            "and disks that never stall."
        ),
    ] = "normal"
