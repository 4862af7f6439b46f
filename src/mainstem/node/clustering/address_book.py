"""Addresses of the other nodes, kept on disk: without them the catalogue cannot be reached.

An address announced by the node itself overrides one reported by others. A lost or damaged file
does no harm: nodes announce themselves again. A file of a later version is left unchanged. On a
full disk the file stays as it was, and is written when the next address arrives.
"""

import logging
from pathlib import Path

import msgspec

from mainstem.cluster.frame_storage import refusal
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import UnknownVersion
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.placement.persistence.identity_storage import write_atomically

NAME = "peers.json"
VERSION = 1

Address = tuple[str, int]

_log = logging.getLogger(__name__)
_address_decoder = msgspec.json.Decoder(dict[int, Address])


class AddressBook:
    """The addresses of nodes, kept in a file.

    Args:
        path: the file; None keeps nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._addresses: dict[NodeId, Address] = {}
        self._is_late = False  # the file could not be written
        try:
            data = path.read_bytes()
            _check_version(data, path)
            found = _address_decoder.decode(data)
        except FileNotFoundError:
            return
        except DECODE_ERRORS as error:
            _log.warning("%s is unreadable and is replaced by an empty one: %s", path, error)
            return
        self._addresses = {NodeId(node): address for node, address in found.items()}

    def address_of(self, node: NodeId) -> Address | None:
        """The address of a node, if it is known."""
        return self._addresses.get(node)

    def all(self) -> dict[NodeId, Address]:
        """Every address."""
        return dict(self._addresses)

    def put(self, node: NodeId, address: Address) -> None:
        """Store the address that a node announced of itself."""
        if address[1] and (self._is_late or self._addresses.get(node) != address):
            self._addresses[node] = address
            self._write()

    def put_node(self, node: Node) -> None:
        """Store the address of a node that registered."""
        self.put(node.id, (node.peer_host, node.peer_port))

    def fill(self, known: dict[NodeId, Address]) -> None:
        """Store addresses that another node reported, where none is known."""
        new = {node: address for node, address in known.items() if node not in self._addresses}
        if new:
            self._addresses |= new
            self._write()

    def drop(self, node: NodeId) -> None:
        """Remove a node that left the cluster for good."""
        if self._addresses.pop(node, None) is not None:
            self._write()

    def _write(self) -> None:
        data = {str(node): address for node, address in sorted(self._addresses.items())}
        try:
            write_atomically(self._path, msgspec.json.encode(data))
        except OSError as error:
            passing = refusal(error, self._path)
            if passing is None:
                raise
            if not self._is_late:
                _log.warning("the addresses of nodes are not written yet: %s", passing)
            self._is_late = True
        else:
            self._is_late = False


def _check_version(data: bytes, path: Path) -> None:
    """Refuse a later version: it has a member ``version``, and the first one has none."""
    found = msgspec.json.decode(data)
    if isinstance(found, dict) and "version" in found:
        raise UnknownVersion("an address book", found["version"], VERSION, subject=str(path))
