"""Filters and topics: tries find what the plain rule finds, whatever comes and goes."""

from hypothesis import given
from hypothesis import strategies as st

from mainstem.model.message import Message
from mainstem.protocols.mqtt.convert import Incoming, message_of, topic_of
from mainstem.protocols.mqtt.retained_tree import RetainedTree
from mainstem.protocols.mqtt.subscription_trie import Granted, SubscriptionTrie
from mainstem.wire.mqtt.packets import Publish, Subscription
from mainstem.wire.mqtt.topics import fits, is_filter, is_topic_name

levels = st.sampled_from(["a", "b", "", "$s"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(is_topic_name)
filters = (
    st.lists(st.one_of(levels, st.sampled_from(["+", "#"])), min_size=1, max_size=4)
    .map("/".join)
    .filter(is_filter)
)
changes = st.lists(st.tuples(st.booleans(), filters, st.integers(0, 3)), max_size=30)


@given(changes, st.lists(topics, min_size=1, max_size=5))
def test_the_trie_finds_whom_the_plain_rule_finds(
    steps: list[tuple[bool, str, int]], asked: list[str]
) -> None:
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    plain: set[tuple[str, int]] = set()
    for comes, text, who in steps:
        if comes:
            assert trie.add(text, who, Granted(Subscription(text))) is ((text, who) not in plain)
            plain.add((text, who))
        else:
            assert trie.discard(text, who) is ((text, who) in plain)
            plain.discard((text, who))
        for topic in asked:
            found = {
                (granted.subscription.filter, who)
                for who, many in trie.match(topic)
                for granted in many
            }
            assert found == {(f, w) for f, w in plain if fits(f, topic)}
    assert len(trie) == len(plain)


def kept(topic: str, payload: bytes) -> Incoming:
    return Incoming(Message(topic.encode(), payload), topic)


@given(st.lists(st.tuples(topics, st.sampled_from([b"", b"x", b"yy"])), max_size=30), filters)
def test_retained_messages_are_the_last_of_each_topic_that_fits(
    steps: list[tuple[str, bytes]], text: str
) -> None:
    tree = RetainedTree(messages_max=100, bytes_max=1 << 20)
    plain: dict[str, bytes] = {}
    for topic, payload in steps:
        tree.keep(kept(topic, payload))
        plain[topic] = payload
        if not payload:
            del plain[topic]
    found = [(each.topic, each.payload) for each in tree.match(text, 0)]
    assert sorted(found) == sorted((t, p) for t, p in plain.items() if fits(text, t))
    assert len(tree) == len(plain)
    for topic in list(plain):
        tree.keep(kept(topic, b""))
    assert (len(tree), tree.size_bytes) == (0, 0)


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)
pairs = st.lists(st.tuples(texts | st.sampled_from(["mqtt.qos", "mqtt.user.x"]), texts), max_size=4)
# A user property under a name that all protocols share means the same as theirs.
SHARED = {"content-type", "correlation-id", "reply-to", "expires-at"}


@given(
    topics,
    st.binary(max_size=20),
    st.integers(0, 2),
    st.booleans(),
    st.fixed_dictionaries(
        {},
        optional={
            "payload_format_indicator": st.just(1),
            "content_type": texts,
            "response_topic": topics,
            "correlation_data": st.binary(max_size=10),
            "user_properties": pairs.map(tuple).filter(bool),
        },
    ),
)
def test_a_message_through_the_log_is_the_same_message(
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    told: dict[str, object],
) -> None:
    users = told.get("user_properties", ())
    assert isinstance(users, tuple)
    if any(name in SHARED for name, _ in users):
        return
    packet = Publish(topic, payload, qos, retain, properties=told)
    message = Message.of_record(message_of(packet, "me", 5).to_record())

    found = Incoming(message, topic_of(message, "other"))

    assert (found.topic, found.payload, found.qos, found.retain) == (topic, payload, qos, retain)
    assert (found.properties, found.publisher) == (told, b"me")
