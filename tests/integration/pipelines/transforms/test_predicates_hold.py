"""Whatever the step and the records: a record that the predicate rejects keeps every byte."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.integration.pipelines.transforms.outcomes import Out, Record, outcomes, step
from tests.integration.pipelines.transforms.test_plans import EXAMPLES

NAMES = st.sampled_from(["a", "b", "c", "d", "e", "op", "source", "before", "after", "odd.name"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=6)
RECORDS = st.builds(
    Record,
    value=st.none()
    | OBJECTS.map(json.dumps)
    | OBJECTS.map(lambda value: json.dumps(value, indent=1, ensure_ascii=False))
    | st.binary(max_size=12),
    topic=st.sampled_from(["in", "out", None]),
    key=st.none() | st.binary(max_size=4),
    headers=st.none() | st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2),
)
KINDS = sorted(set(EXAMPLES) - {"sql"})


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
    records=st.lists(RECORDS, min_size=10, max_size=30),
    negate=st.booleans(),
)
def test_a_record_that_the_predicate_rejects_keeps_every_byte(
    spark: SparkSession, kinds: list[str], records: list[Record], negate: bool
) -> None:
    wanted: dict[str, Any] = {"topic": "in|x.in|t.*|outbox.*", "negate": negate}
    steps = [step(kind, wanted, **EXAMPLES[kind]) for kind in kinds]
    found = outcomes(spark, steps, records)
    for record, out in zip(records, found, strict=True):
        if (record.topic == "in") != negate:
            continue
        assert isinstance(out, Out)
        value = record.value.encode() if isinstance(record.value, str) else record.value
        headers = None if record.headers is None else tuple(record.headers)
        assert out == Out(value, record.topic, record.key, headers, None, None)
