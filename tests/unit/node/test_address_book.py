"""Where other nodes are, over restarts."""

from pathlib import Path

from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.node.address_book import AddressBook

TWO = NodeId(2)


def test_an_address_is_remembered_over_a_restart(tmp_path: Path) -> None:
    AddressBook(tmp_path / "peers.json").put(TWO, ("10.0.0.2", 9094))
    assert AddressBook(tmp_path / "peers.json").address_of(TWO) == ("10.0.0.2", 9094)


def test_what_a_node_says_of_itself_counts_more_than_what_others_say(tmp_path: Path) -> None:
    book = AddressBook(tmp_path / "peers.json")
    book.put(TWO, ("new", 1))
    book.fill({TWO: ("old", 2), NodeId(3): ("third", 3)})
    assert book.all() == {TWO: ("new", 1), NodeId(3): ("third", 3)}


def test_a_node_that_others_cannot_reach_is_not_put_down(tmp_path: Path) -> None:
    book = AddressBook(tmp_path / "peers.json")
    book.put_node(Node(TWO, "127.0.0.1", 9092))
    assert book.address_of(TWO) is None


def test_a_damaged_book_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "peers.json").write_text("{")
    assert AddressBook(tmp_path / "peers.json").all() == {}


def test_a_node_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    book = AddressBook(tmp_path / "peers.json")
    book.put(TWO, ("10.0.0.2", 9094))
    book.drop(TWO)
    assert AddressBook(tmp_path / "peers.json").all() == {}
