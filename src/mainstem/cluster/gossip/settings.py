"""How fast gossip runs; the defaults suit machines of one site."""

import msgspec


class GossipSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times and numbers.

    Args:
        probe_interval_s: one member is asked for a sign of life this often.
        probe_timeout_s: a direct answer has this long; then others are asked to try.
        indirect_probes: how many others are asked.
        gossip_interval_s: news goes out this often beside probes.
        gossip_fanout: to how many members.
        gossip_to_gone_s: a member that is gone hears the news for so long, to contradict it.
        exchange_interval_s: everything known is compared with one member this often.
        suspicion_factor: how patiently a silent member is suspected before it counts as dead.
        suspicion_stretch: how much more patient a node is that stands alone with its suspicion.
        retransmit_factor: how often one piece of news is passed on.
        health_max: how much a node that is slow itself slows its probes down.
        packet_bytes_max: the size of a datagram.
        forget_s: a member that is gone is forgotten after this.
        members_max: how many members are kept at the most.
    """

    probe_interval_s: float = 1.0
    probe_timeout_s: float = 0.5
    indirect_probes: int = 3
    gossip_interval_s: float = 0.2
    gossip_fanout: int = 3
    gossip_to_gone_s: float = 30.0
    exchange_interval_s: float = 30.0
    suspicion_factor: int = 4
    suspicion_stretch: int = 6
    retransmit_factor: int = 4
    health_max: int = 8
    packet_bytes_max: int = 1_400
    forget_s: float = 3_600.0
    members_max: int = 1_024


FAST = GossipSettings(
    probe_interval_s=0.2,
    probe_timeout_s=0.1,
    gossip_interval_s=0.05,
    exchange_interval_s=5.0,
    suspicion_stretch=3,
)
