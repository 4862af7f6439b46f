"""A small, fixed part of what ``make fuzz`` does, and proof that it notices what is wrong."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mainstem.wire.kafka import codec

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz_codec.py"


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_codec", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_codec"] = module
    spec.loader.exec_module(module)
    return module


def test_twenty_thousand_strange_inputs_are_all_answered_cleanly(fuzz: ModuleType) -> None:
    assert fuzz.run(seed=2, start=0, cases=20_000) == 0


def test_a_case_is_the_same_whatever_ran_before_it(fuzz: ModuleType) -> None:
    whole, part = fuzz.Fuzzer(3), fuzz.Fuzzer(3)
    for index in range(300):
        whole.run(index)
    at_200 = dict(whole.outcomes)
    again = fuzz.Fuzzer(3)
    for index in range(200):
        again.run(index)
    for index in range(200, 300):
        part.run(index)
    together = {key: again.outcomes[key] + part.outcomes[key] for key in at_200}
    assert together == at_200


def test_a_decoder_that_lets_another_error_escape_is_reported(
    fuzz: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(codec, "_DECODE_ERRORS", ())

    failures = fuzz.run(seed=2, start=0, cases=2_000, quiet=True)

    assert failures > 0
    assert "UNCLEAN --seed 2" in capsys.readouterr().err
