"""A small, fixed part of what ``make fuzz`` does to what nodes send each other."""

from scripts import fuzz_codec, fuzz_peers


def test_ten_thousand_strange_inputs_are_all_answered_cleanly() -> None:
    assert fuzz_codec.run(2, 0, 10_000, quiet=True, make=fuzz_peers.PeersFuzzer) == 0


def test_both_outcomes_are_common() -> None:
    fuzzer = fuzz_peers.PeersFuzzer(5)
    for index in range(2_000):
        fuzzer.run(index)
    assert min(fuzzer.outcomes.values()) > 200
