"""A small, fixed part of what ``make fuzz`` does to AMQP's codec."""

from scripts import fuzz_amqp, fuzz_codec


def test_twenty_thousand_strange_inputs_are_all_answered_cleanly() -> None:
    assert fuzz_codec.run(2, 0, 20_000, quiet=True, make=fuzz_amqp.AmqpFuzzer) == 0


def test_both_outcomes_are_common() -> None:
    fuzzer = fuzz_amqp.AmqpFuzzer(5)
    for index in range(2_000):
        fuzzer.run(index)
    assert min(fuzzer.outcomes.values()) > 200
