"""Connectors are found by name, and what is missing is named."""

import sys
from types import ModuleType

import pytest
from msgspec import Struct

from mainstem.model.errors import InvalidRequest
from mainstem.pipelines.connector.registry import Registry
from mainstem.pipelines.connector.spec import Category, Spec


class NoSettings(Struct, forbid_unknown_fields=True):
    pass


def test_the_connectors_of_the_house_are_there() -> None:
    registry = Registry()
    assert {"datagen", "stdout"} <= set(registry.names())
    assert registry.source("datagen").spec().kind == "source"
    assert registry.sink("stdout").spec().kind == "sink"


def test_every_connector_bears_the_name_it_is_found_by() -> None:
    registry = Registry()
    assert {spec.name for spec in registry.inventory()} == set(registry.names())


def test_a_misspelt_connector_is_answered_with_the_nearest() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Registry().source("datagenn")
    assert "datagen" in caught.value.remedy


def test_a_sink_is_no_source() -> None:
    with pytest.raises(InvalidRequest, match="stdout is a sink, not a source"):
        Registry().source("stdout")


def test_a_package_can_bring_a_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs:
        def spec(self) -> Spec:
            return Spec(
                name="theirs",
                kind="sink",
                title="Theirs",
                category=Category.HTTP,
                config=NoSettings,
            )

    module = ModuleType("acme_theirs")
    module.SINK = Theirs()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "acme_theirs", module)
    registry = Registry({"theirs": "acme_theirs"})
    assert registry.sink("theirs").spec().title == "Theirs"
    assert [spec.name for spec in registry.inventory()] == ["theirs"]


def test_a_missing_library_names_the_extra_that_brings_it() -> None:
    spec = Spec(
        name="theirs",
        kind="sink",
        title="Theirs",
        category=Category.DATABASE,
        config=NoSettings,
        extra="postgres",
        modules=("no_such_library.inner", "json"),
    )
    assert spec.missing == ("no_such_library.inner",)
    with pytest.raises(InvalidRequest) as caught:
        spec.require()
    assert "mainstem[postgres]" in caught.value.remedy
