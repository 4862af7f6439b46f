"""The words in which the client speaks of rules are those of the node."""

from enum import IntEnum

import pytest

from mainstem.client.administration import acls
from mainstem.client.administration.delegation_tokens import DelegationTokenInfo
from mainstem.client.administration.quotas import ENTITY_KINDS, entity_text
from mainstem.client.rest_admin import ApiTokenInfo, RestAdmin, RestLogin
from mainstem.model.errors import InvalidRequest
from mainstem.security import quotas
from mainstem.security.authorisation.acl import Operation, PatternType, Permission, ResourceType


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        (acls.RESOURCES, ResourceType),
        (acls.PATTERN_FILTERS, PatternType),
        (acls.OPERATIONS, Operation),
        (acls.PERMISSIONS, Permission),
    ],
)
def test_words_stand_for_the_numbers_that_the_node_uses(
    table: dict[str, int], kind: type[IntEnum]
) -> None:
    known = {each.name.lower(): each.value for each in kind}
    assert table.items() <= known.items()
    assert known.keys() - table.keys() <= {"unknown", "any"}


def test_entities_are_those_of_the_node() -> None:
    assert set(ENTITY_KINDS) == {quotas.USER, quotas.CLIENT, quotas.ADDRESS}
    assert entity_text({"user": "alice", "client-id": None}) == "user=alice client-id"


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "http://", "http://x/path", "http://x:port", "http://[::1"]
)
def test_what_is_no_address_of_http_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        RestAdmin(url, RestLogin())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_secrets_travel_in_the_clear_on_this_machine_only(host: str) -> None:
    for login in (RestLogin(user="a", password="p"), RestLogin(token="t")):
        RestAdmin(f"http://{host}:8080", login)
        RestAdmin("https://example.com", login)
        with pytest.raises(InvalidRequest, match="unencrypted"):
            RestAdmin("http://example.com:8080", login)
    RestAdmin("http://example.com:8080", RestLogin())


def test_secrets_are_not_shown() -> None:
    token = ApiTokenInfo("i", "o", "n", 0, None, None, "hidden")
    delegated = DelegationTokenInfo("i", "o", "r", (), 0, 0, 0, "hidden")
    login = RestLogin(user="u", password="hidden", token="hidden")
    assert "hidden" not in f"{token!r} {delegated!r} {login!r}"
