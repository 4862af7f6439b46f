"""Where other nodes are, over restarts."""

from pathlib import Path

from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.node.clustering.address_book import AddressBook
from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault

TWO = NodeId(2)


def test_an_address_is_remembered_over_a_restart(tmp_path: Path) -> None:
    AddressBook(tmp_path / "peers.json").put(TWO, ("10.0.0.2", 9094))
    assert AddressBook(tmp_path / "peers.json").address_of(TWO) == ("10.0.0.2", 9094)


def test_what_a_node_says_of_itself_counts_more_than_what_others_say(tmp_path: Path) -> None:
    addresses = AddressBook(tmp_path / "peers.json")
    addresses.put(TWO, ("new", 1))
    addresses.fill({TWO: ("old", 2), NodeId(3): ("third", 3)})
    assert addresses.all() == {TWO: ("new", 1), NodeId(3): ("third", 3)}


def test_a_node_that_others_cannot_reach_is_not_put_down(tmp_path: Path) -> None:
    addresses = AddressBook(tmp_path / "peers.json")
    addresses.put_node(Node(TWO, "127.0.0.1", 9092))
    assert addresses.address_of(TWO) is None


def test_a_damaged_book_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "peers.json").write_text("{")
    assert AddressBook(tmp_path / "peers.json").all() == {}


def test_a_node_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    addresses = AddressBook(tmp_path / "peers.json")
    addresses.put(TWO, ("10.0.0.2", 9094))
    addresses.drop(TWO)
    assert AddressBook(tmp_path / "peers.json").all() == {}


def test_a_book_that_a_full_disk_refuses_is_written_when_a_node_is_next_heard_of(
    tmp_path: Path,
) -> None:
    book = AddressBook(tmp_path / "peers.json")
    with FaultyFiles() as files:
        files.begin(tmp_path, FileFault.FULL)
        book.put(TWO, ("10.0.0.2", 9094))
    assert book.address_of(TWO) == ("10.0.0.2", 9094)
    assert AddressBook(tmp_path / "peers.json").all() == {}
    book.put(TWO, ("10.0.0.2", 9094))
    assert AddressBook(tmp_path / "peers.json").address_of(TWO) == ("10.0.0.2", 9094)
