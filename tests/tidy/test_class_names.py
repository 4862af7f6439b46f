"""The head noun of a class is a term of the glossary, a plain word of programming, or a verb form.

A reader who has never seen the class guesses from its name what it is. A new head noun is added to
the glossary if it is a term of the product, or to ``PLAIN`` if every programmer knows it.
"""

import ast
import re
from functools import cache

import pytest
from tests.tidy.source_tree import ROOT, modules

GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"

# Nouns and adjectives of programming, of networks and of the algorithms' papers; singular.
_PLAIN = """
abort acceptor ack acl add address admin admission admit allocator app append assembly assignment
attempt audit authenticator backlog backpressure balance bar begin blob block body book bound
boundary bucket budget byte cache call case cast category challenge channel checksum chunk claim
client clock closable code codec column comparison component computation config connection content
context copy corrupt count coverage create credential daemon damage deadline death decision decoy
default delete deletion description descriptor destination difference digest dir directory disk
document done effect election end endpoint entity entry environment error event expiry export
failure fault fetch field file flatten flight frame freshness get gone grant gtid guarantee handle
handshake health heap heartbeat hello histogram hook hub identity ids image index info instance
instant item job journal kind large layout left lifecycle limit line link list literal load location
lockout login lookup loop lost maintenance manifest map mark match mechanism membership memory meta
metadata method metric mismatch mode model monitor move network not null observation operation
option origin outbox outcome output overflow oversize overview pace packet pair part password path
pattern pause permission phase piece plain plan point position pressure probe problem process
produce progress promise proof property proposal protection proven publish push query quorum raft
rate read ready reason refusal refuse registry rejection relation relay release relocator renewal
replay replication reply request requirement reset resource result right rotate round route row run
sample scan schedule schema scram secret section security service set setting settlement severity
shape signal simulator slice slot socket space span spec spool sql stamp state status step storage
store suite summary suspicion swim synonym table tag tail taken target task telemetry text thread
time timeout tls topology trace traffic transport tree trie truncate trust type unavailable unbound
unknown unreachable unwrap update upkeep value verification version view violation visibility wait
wildcard window wire
"""
PLAIN = frozenset(_PLAIN.split())
# What carries out a verb (Reader), what happened (TopicDeleted), what goes on (Publishing).
VERB_FORMS = ("er", "ed", "ing")
# Messages of a wire protocol have the names that its specification gives them.
SPECIFIED = ("wire/",)

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+[0-9]*")


def singular(word: str) -> str:
    if len(word) <= 3 or word.endswith(("ss", "us", "is")):
        return word
    for plural, ending in (("ies", "y"), ("ches", "ch"), ("s", "")):
        if word.endswith(plural):
            return word.removesuffix(plural) + ending
    return word


@cache
def terms() -> frozenset[str]:
    rows = re.findall(r"^\| ([^|]+) \|", GLOSSARY.read_text().lower(), flags=re.MULTILINE)
    return frozenset(singular(word) for row in rows for word in re.findall("[a-z]+", row))


def is_plain(class_name: str) -> bool:
    head = singular(_WORD.findall(class_name)[-1].lower())
    return head in terms() or head in PLAIN or head.endswith(VERB_FORMS)


def public_classes() -> dict[str, str]:
    """Every public class, with the module that it is in."""
    return {
        node.name: name
        for name, module in modules().items()
        if not name.startswith(SPECIFIED)
        for node in ast.parse(module.text).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }


def test_the_head_noun_of_every_class_is_known() -> None:
    found = {kind: place for kind, place in public_classes().items() if not is_plain(kind)}
    assert not found, "choose the field's word, or add it to the glossary or to PLAIN"


def test_every_plain_word_is_used() -> None:
    heads = {singular(_WORD.findall(kind)[-1].lower()) for kind in public_classes()}
    assert not PLAIN - heads


@pytest.mark.parametrize("name", ["StreamDoor", "TokenDesk", "ReplicaShelf", "PublishFate"])
def test_a_metaphor_is_noticed(name: str) -> None:
    assert not is_plain(name)


@pytest.mark.parametrize("name", ["PartitionReader", "TopicDeleted", "Queues", "RaftSettings"])
def test_the_fields_words_are_accepted(name: str) -> None:
    assert is_plain(name)
