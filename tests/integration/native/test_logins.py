"""Who gets in by the native protocol, how, and what he may do then."""

import ssl
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from tests.integration.native.raw_client import RawClient
from tests.integration.security.kit import ADMIN_PASSWORD, USER_PASSWORD, SecureNode, rule

from mainstem import connect
from mainstem.client.native.connection import NativeSettings
from mainstem.client.native.message import outgoing
from mainstem.client.queues import Queues
from mainstem.client.sasl import SaslSettings
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.node.config.command_line import configuration
from mainstem.security.authorisation.acl import Operation, PatternType, ResourceType

ASKS = ("--set", "native.enabled=true", "--set", "native.login=true")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    folder = tmp_path_factory.mktemp("native")
    with SecureNode(folder, *ASKS, "--set", "native.tls=true") as made:
        queues = (ResourceType.TOPIC, "queue.carol")
        made.make_user(
            "carol",
            rule("carol", Operation.ALL, queues, pattern=PatternType.PREFIXED),
            rule("carol", Operation.WRITE, (ResourceType.TOPIC, "shop")),
        )
        yield made


def settings(node: SecureNode, sasl: SaslSettings | None, **files: Any) -> NativeSettings:
    context = ssl.create_default_context(cafile=str(node.certificates.ca))
    if files:
        context.load_cert_chain(**files)
    return NativeSettings(tls=context, sasl=sasl, connect_timeout_ms=20_000)


def password(name: str, secret: str, mechanism: str = "PLAIN") -> SaslSettings:
    return SaslSettings(mechanism=mechanism, username=name, password=secret)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_the_right_password_gets_in(node: SecureNode, mechanism: str) -> None:
    login = password("admin", ADMIN_PASSWORD, mechanism)
    async with connect(node.native, settings(node, login)) as queues:
        await (await queues.declare("admins")).publish(b"x")
        assert (await queues.queue("admins").get(no_ack=True)) is not None


@pytest.mark.parametrize(
    "login",
    [
        None,
        password("admin", "wrong"),
        password("admin", "wrong", "SCRAM-SHA-256"),
        password("nobody", ADMIN_PASSWORD, "SCRAM-SHA-512"),
        password("carol", ADMIN_PASSWORD),
        SaslSettings(mechanism="OAUTHBEARER", token="not a token"),
    ],
)
async def test_nobody_else_does(node: SecureNode, login: SaslSettings | None) -> None:
    async def attempt() -> None:
        async with connect(node.native, settings(node, login)):
            raise AssertionError("in")

    with pytest.raises(MainstemError) as refused:
        await attempt()
    assert refused.value.code in (
        ErrorCode.AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_MECHANISM,
    )


async def test_a_certificate_is_a_login(node: SecureNode) -> None:
    certificate, key = node.certificates.issue("carol")
    by = settings(node, None, certfile=str(certificate), keyfile=str(key))
    async with connect(node.native, by) as queues:
        await queues.declare("carol-certified")
        with pytest.raises(MainstemError):
            await queues.declare("others")


def test_without_tls_nobody_gets_a_word_in(node: SecureNode) -> None:
    with RawClient(node.native) as client:
        client.send(1, {"type": "connect", "version": 1})
        assert client.is_closed()


async def test_rights_are_asked_for_every_word(node: SecureNode) -> None:
    admin = settings(node, password("admin", ADMIN_PASSWORD))
    async with connect(node.native, admin) as queues:
        await queues.declare_exchange("shop", "fanout")
        await queues.declare("others")
        await queues.topics.create("private")
    carol = settings(node, password("carol", USER_PASSWORD))
    async with connect(node.native, carol) as queues:
        await _carols_story(queues)


async def _carols_story(queues: Queues) -> None:
    mine, others, shop = await queues.declare("carols"), queues.queue("others"), "shop"
    await mine.publish(b"x")
    await queues.exchange(shop).publish(b"x")
    names = {info.name for info in await queues.list_queues()}
    assert {name.removesuffix(".dead") for name in names} == {"carols", "carol-certified"}
    assert "private" not in {topic.name for topic in await queues.topics.list_topics()}
    forbidden: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: queues.declare("mine"),
        lambda: queues.declare_exchange("mine"),
        lambda: queues.exchange(shop).delete(),
        lambda: queues.exchange(shop).bind(mine),
        lambda: others.publish(b"x"),
        others.get,
        lambda: others.consume().open(),
        others.purge,
        others.delete,
        others.info,
        others.browse,
        lambda: mine.move(others),
        mine.move,
        lambda: mine.publish_many([_copied("others")]),
        lambda: queues.topics.create("mine"),
        lambda: queues.topics.append("private", b"x"),
        lambda: queues.topics.read("private"),
        lambda: queues.topics.delete("private"),
    ]
    for place, attempt in enumerate(forbidden):
        with pytest.raises(MainstemError) as refused:
            await attempt()
        assert refused.value.code is ErrorCode.NOT_AUTHORIZED, place


async def test_a_right_that_is_taken_away_ends_publishing_on_open_connections(
    node: SecureNode,
) -> None:
    everything = (ResourceType.TOPIC, "queue.dora")
    node.make_user("dora", rule("dora", Operation.ALL, everything))

    async with connect(node.native, settings(node, password("dora", USER_PASSWORD))) as queues:
        queue = await queues.declare("dora")
        await queue.publish(b"x")
        with node.client() as admin:
            admin.allow(rule("dora", Operation.WRITE, everything, deny=True))
        with pytest.raises(MainstemError) as refused:
            await queue.publish(b"y")
        assert refused.value.code is ErrorCode.NOT_AUTHORIZED


def _copied(queue: str) -> Any:
    return outgoing(b"x", {"headers": {"CC": queue}})


@pytest.mark.parametrize(
    ("flags", "path"),
    [
        (["native.host=0.0.0.0"], "native.host"),
        (["native.host=0.0.0.0", "native.login=true"], "native.tls"),
        (["native.tls=true"], "tls.certificate_file"),
    ],
)
def test_a_node_does_not_start_with_an_insecure_listener(flags: list[str], path: str) -> None:
    given = [word for flag in ["native.enabled=true", *flags] for word in ("--set", flag)]
    with pytest.raises(InvalidRequest) as refused:
        configuration(given, {})
    assert refused.value.subject == path
