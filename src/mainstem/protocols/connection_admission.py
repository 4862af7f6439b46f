"""Admission of new connections, so that a node never runs out of descriptors.

Files of the log and connections of other nodes have reserved descriptors. The rest is for clients:
half of it is divided equally among the protocols and reserved for each of them, the other half is
first come, first served. So one protocol cannot use up the connections of another. The connections
of one address that have not logged in may take only a small part of a protocol's connections.
"""

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from mainstem.model.limits import BEFORE_LOGIN_PER_ADDRESS_MIN, CONNECTIONS_MAX

PROTOCOLS: Final = ("amqp", "http", "kafka", "mqtt", "native", "relay")
DESCRIPTORS_UNLIMITED: Final = 100 * CONNECTIONS_MAX
# What one address may hold before login, as a fraction of all descriptors for clients.
BEFORE_LOGIN_PART: Final = 8

Leave = Callable[["ConnectionSlot"], None]


class ConnectionRejection(Enum):
    """Why a connection is closed at once."""

    DESCRIPTORS = "descriptors"
    LISTENER = "max_connections"
    ADDRESS = "not_logged_in_per_address"
    RATE = "connections_per_minute"
    ACCEPT = "accept_failed"


class AuthenticatingSession(Protocol):
    """A session that knows whether its client has logged in."""

    @property
    def is_logged_in(self) -> bool:
        """Whether the client has logged in or, if no login is required, has sent a request."""
        ...


class ConnectionSlot:
    """The descriptors of one connection, from its acceptance until it is closed."""

    __slots__ = ("_leave", "address", "session")

    def __init__(self, address: str, leave: "Leave") -> None:
        self.address = address
        self.session: AuthenticatingSession | None = None
        self._leave: Leave | None = leave

    @property
    def is_logged_in(self) -> bool:
        """Whether the client has logged in."""
        return self.session is not None and self.session.is_logged_in

    def leave(self) -> None:
        """Release the descriptors; idempotent."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave(self)


class ConnectionAdmission:
    """Counts the descriptors that clients hold, by protocol.

    Args:
        descriptors: how many there are for all clients together.
    """

    def __init__(self, descriptors: int = DESCRIPTORS_UNLIMITED) -> None:
        self.descriptors = descriptors
        self._kept = descriptors // (2 * len(PROTOCOLS))
        self._shared = descriptors - self._kept * len(PROTOCOLS)
        self._held: Counter[str] = Counter()
        self.before_login_max = max(BEFORE_LOGIN_PER_ADDRESS_MIN, descriptors // BEFORE_LOGIN_PART)

    @property
    def held(self) -> int:
        """Descriptors of all clients."""
        return sum(self._held.values())

    @property
    def is_near_limit(self) -> bool:
        """Whether less than a tenth of the shared descriptors is left."""
        return self._shared_held() > 0.9 * self._shared

    def take(self, protocol: str, count: int = 1) -> bool:
        """Take descriptors for a connection; False if there are none for this protocol."""
        held = self._held[protocol]
        beyond = max(0, held + count - self._kept) - max(0, held - self._kept)
        if beyond and self._shared_held() + beyond > self._shared:
            return False
        self._held[protocol] = held + count
        return True

    def give_back(self, protocol: str, count: int = 1) -> None:
        """Release the descriptors of a closed connection."""
        self._held[protocol] -= count
        assert self._held[protocol] >= 0, "only taken descriptors are given back"

    def _shared_held(self) -> int:
        return sum(max(0, held - self._kept) for held in self._held.values())


class PendingLogins:
    """The connections of one listener that have not logged in, by address."""

    def __init__(self, per_address_max: int) -> None:
        self._per_address_max = per_address_max
        self._by_address: dict[str, set[ConnectionSlot]] = {}

    def is_crowded(self, address: str) -> bool:
        """Whether an address has reached its limit."""
        places = self._by_address.get(address)
        if places is None or len(places) < self._per_address_max:
            return False
        # Sessions do not report a login: logged-in ones are removed here, at the limit.
        waiting = {place for place in places if not place.is_logged_in}
        self._by_address[address] = waiting
        return len(waiting) >= self._per_address_max

    def add(self, place: ConnectionSlot) -> None:
        """Add an accepted connection."""
        self._by_address.setdefault(place.address, set()).add(place)

    def discard(self, place: ConnectionSlot) -> None:
        """Remove a closed connection."""
        places = self._by_address.get(place.address)
        if places is not None:
            places.discard(place)
            if not places:
                del self._by_address[place.address]
