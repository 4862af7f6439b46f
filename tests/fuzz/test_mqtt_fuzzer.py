"""A small, fixed part of what ``make fuzz`` does to MQTT's codec and to WebSocket frames."""

from scripts import fuzz_codec, fuzz_mqtt


def test_twenty_thousand_strange_inputs_are_all_answered_cleanly() -> None:
    assert fuzz_codec.run(2, 0, 20_000, quiet=True, make=fuzz_mqtt.MqttFuzzer) == 0


def test_both_outcomes_are_common() -> None:
    fuzzer = fuzz_mqtt.MqttFuzzer(5)
    for index in range(2_000):
        fuzzer.run(index)
    assert min(fuzzer.outcomes.values()) > 200
