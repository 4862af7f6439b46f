"""Settings of gossip; the defaults suit machines of one site."""

import msgspec


class GossipSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals, time-outs and limits.

    Args:
        probe_interval_s: one member is probed this often.
        probe_timeout_s: time for a direct answer; then other members are asked to probe.
        indirect_probes: how many other members are asked.
        gossip_interval_s: claims are sent this often, in addition to probes.
        gossip_fanout: to how many members.
        gossip_to_gone_s: how long a left or dead member still receives gossip, to refute it.
        exchange_interval_s: full state is exchanged with one member this often.
        suspicion_factor: how long a failed member is suspected before it counts as dead.
        suspicion_stretch: how much longer if no other node confirms the suspicion.
        retransmit_factor: how often one claim is sent.
        health_max: how much a node that is slow itself slows its probes down.
        packet_bytes_max: the size of a datagram.
        forget_s: a left or dead member is forgotten after this.
        members_max: the largest number of members kept.
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
