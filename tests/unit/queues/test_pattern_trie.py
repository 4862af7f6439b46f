import pytest

from mainstem.queues.routing.pattern_trie import AMQP, MQTT, PatternTrie


@pytest.mark.parametrize(
    ("pattern", "topic", "fits"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*", "", False),
        ("", "", True),
        ("#", "", True),
        ("#", "a.b.c", True),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("a.#", "b", False),
        ("#.c", "c", True),
        ("#.c", "a.b.c", True),
        ("#.c", "a.c.b", False),
        ("a.#.c", "a.c", True),
        ("a.#.c", "a.x.y.c", True),
        ("#.#.#.a", "a", True),
        ("*.#", "", False),
        ("#.*", "a", True),
        ("a..b", "a..b", True),
        ("a.*.b", "a..b", True),
        ("*.stock.#", "usd.stock.db.eur", True),
    ],
)
def test_words_match_as_in_topic_exchanges(pattern: str, topic: str, fits: bool) -> None:
    trie: PatternTrie[str] = PatternTrie(AMQP)
    trie.add(pattern, "q")

    assert (list(trie.match(topic)) == ["q"]) is fits


@pytest.mark.parametrize(
    ("pattern", "topic", "fits"),
    [
        ("a/b", "a/b", True),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/+", "a/", True),
        ("+", "", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "a", True),
        ("#", "$SYS/up", False),
        ("+/up", "$SYS/up", False),
        ("$SYS/#", "$SYS/up", True),
        ("$SYS/+", "$SYS/up", True),
        ("+/+", "/finance", True),
        ("+", "/finance", False),
    ],
)
def test_levels_match_as_in_mqtt(pattern: str, topic: str, fits: bool) -> None:
    trie: PatternTrie[str] = PatternTrie(MQTT)
    trie.add(pattern, "s")

    assert (list(trie.match(topic)) == ["s"]) is fits


def test_a_pattern_that_is_taken_out_leaves_nothing_behind() -> None:
    trie: PatternTrie[str] = PatternTrie()
    trie.add("a.b.#", "q")
    trie.add("a.*", "r")
    trie.add("a.*", "r")

    trie.discard("a.b.#", "q")
    trie.discard("a.b.#", "q")
    trie.discard("never.there", "q")

    assert (list(trie.match("a.b")), len(trie)) == (["r"], 1)
    trie.discard("a.*", "r")
    assert not trie._root.children


def test_many_rest_wildcards_cost_no_more_than_their_nodes() -> None:
    trie: PatternTrie[str] = PatternTrie()
    trie.add(".".join("#" * 50 + "z"), "q")

    assert not list(trie.match(".".join("a" * 200)))
