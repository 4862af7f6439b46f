"""JSON web tokens: each way to fail open, tried."""

import base64
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import ECKey, KeySet, RSAKey
from tests.kit.clock import ManualClock

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.security.authentication import jwks_client
from mainstem.security.authentication.jwks_client import JwksKeySource, parse_keys
from mainstem.security.authentication.jwt_verifier import JwtSettings, JwtVerifier, UnknownKey
from mainstem.security.authentication.sasl import LoginRefused

NOW_S = 1_700_000_000
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
KEYS = KeySet([RSA, EC])
SETTINGS = JwtSettings(issuer="https://issuer", audiences=("kafka",), groups_claim="groups")
CLAIMS: dict[str, Any] = {
    "iss": "https://issuer",
    "aud": "kafka",
    "sub": "alice",
    "exp": NOW_S + 60,
    "groups": ["ops", 7, ""],
}


def verifier() -> JwtVerifier:
    return JwtVerifier(SETTINGS, ManualClock(NOW_S))


def signed(claims: dict[str, Any], key: Any = RSA, alg: str = "RS256", **head: Any) -> str:
    header = {"alg": alg, "kid": key.kid, **head}
    header = {name: value for name, value in header.items() if value is not None}
    return jws.serialize_compact(header, json.dumps(claims).encode(), key, algorithms=[alg])


def public(keys: KeySet = KEYS) -> bytes:
    return json.dumps(keys.as_dict(private=False)).encode()


@pytest.mark.parametrize(("key", "alg"), [(RSA, "RS256"), (RSA, "PS512"), (EC, "ES256")])
def test_a_good_token_says_who_it_is(key: Any, alg: str) -> None:
    identity = verifier().identity(signed(CLAIMS, key, alg), parse_keys(public()))
    assert str(identity.principal) == "User:alice"
    assert identity.groups == ("ops",)
    assert identity.until_ms == (NOW_S + 60) * 1000


def test_alg_none_is_refused() -> None:
    for alg in ("none", "None", "NONE", ""):
        head = base64.urlsafe_b64encode(json.dumps({"alg": alg}).encode()).rstrip(b"=")
        body = base64.urlsafe_b64encode(json.dumps(CLAIMS).encode()).rstrip(b"=")
        for tail in (b"", b"AAAA"):
            with pytest.raises(LoginRefused):
                verifier().identity((head + b"." + body + b"." + tail).decode(), KEYS)


def test_a_public_key_does_not_serve_as_a_shared_secret() -> None:
    # By hand: libraries refuse to sign with what looks like a public key.
    parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "kid": "rsa"}, CLAIMS)]
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    signature = hmac.digest(RSA.as_pem(private=False), text, "sha256")
    forged = (text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()
    with pytest.raises(LoginRefused):
        verifier().identity(forged, KEYS)


def test_an_unknown_key_is_not_accepted() -> None:
    stranger = RSAKey.generate_key(2048, {"kid": "stranger"})
    with pytest.raises(UnknownKey):
        verifier().identity(signed(CLAIMS, stranger), KEYS)


def test_a_foreign_key_under_a_known_name_is_refused() -> None:
    stranger = RSAKey.generate_key(2048, {"kid": "rsa"})
    with pytest.raises(LoginRefused):
        verifier().identity(signed(CLAIMS, stranger), KEYS)


def test_a_token_that_names_no_key_is_refused_where_there_are_several() -> None:
    token = signed(CLAIMS, kid=None)
    with pytest.raises(LoginRefused):
        verifier().identity(token, KEYS)
    assert verifier().identity(token, KeySet([RSA])).principal.name == "alice"


WRONG: list[dict[str, Any]] = [
    {"iss": "https://other"},
    {"iss": None},
    {"aud": "other"},
    {"aud": None},
    {"aud": []},
    {"aud": ["other", 5]},
    {"aud": {"kafka": 1}},
    {"exp": NOW_S - 31},
    {"exp": None},
    {"exp": "soon"},
    {"exp": True},
    {"exp": 1e300},
    {"exp": NOW_S + 10**9},
    {"nbf": NOW_S + 31},
    {"iat": NOW_S + 31},
    {"nbf": "later"},
    {"sub": None},
    {"sub": ""},
    {"sub": 5},
    {"sub": "*"},
    {"sub": "x" * 300},
]


@pytest.mark.parametrize("change", WRONG, ids=str)
def test_a_wrong_audience_issuer_time_or_name_is_refused(change: dict[str, Any]) -> None:
    claims = {name: value for name, value in {**CLAIMS, **change}.items() if value is not None}
    with pytest.raises(LoginRefused):
        verifier().identity(signed(claims), KEYS)


def test_one_of_several_audiences_is_enough() -> None:
    claims = {**CLAIMS, "aud": ["other", "kafka"]}
    assert verifier().identity(signed(claims), KEYS).principal.name == "alice"


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", "ü.b.c", "x" * 40_000, "[].[].[]"]
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(LoginRefused):
        verifier().identity(text, KEYS)


def test_a_changed_claim_breaks_the_signature() -> None:
    head, _, signature = signed(CLAIMS).split(".")
    body = base64.urlsafe_b64encode(json.dumps({**CLAIMS, "sub": "root"}).encode()).rstrip(b"=")
    with pytest.raises(LoginRefused):
        verifier().identity(f"{head}.{body.decode()}.{signature}", KEYS)


def test_critical_headers_and_payloads_that_are_no_object_are_refused() -> None:
    with pytest.raises(LoginRefused):
        verifier().identity(signed(CLAIMS, crit=["b64"], b64=True), KEYS)
    odd = jws.serialize_compact({"alg": "RS256", "kid": "rsa"}, b"[1]", RSA, algorithms=["RS256"])
    with pytest.raises(LoginRefused):
        verifier().identity(odd, KEYS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": ""},
        {"audiences": ()},
        {"algorithms": ()},
        {"algorithms": ("none",)},
        {"algorithms": ("HS256",)},
    ],
    ids=str,
)
def test_settings_that_would_let_anybody_in_are_refused(wrong: dict[str, Any]) -> None:
    settings = {"issuer": "i", "audiences": ("a",), **wrong}
    with pytest.raises(InvalidRequest):
        JwtVerifier(JwtSettings(**settings), ManualClock())


# Where keys come from


def test_shared_secrets_in_a_set_of_keys_are_left_out() -> None:
    oct_key = {"kty": "oct", "kid": "o", "k": "c2VjcmV0"}
    mixed = {"keys": [oct_key, RSA.as_dict(private=False)]}
    assert [key.kid for key in parse_keys(json.dumps(mixed).encode()).keys] == ["rsa"]


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"keys":[]}', b'{"keys":5}', b'{"keys":[{"kty":"RSA"}]}']
)
def test_what_is_no_set_of_keys_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"key set|Expecting value"):
        parse_keys(data)


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/passwd",
        "ftp://issuer/keys",
        "gopher://issuer/keys",
        "http://issuer.example/keys",
        "http://169.254.169.254/latest/meta-data",
        "https://user:pw@issuer/keys",
        "https:///keys",
        "jar:https://x",
    ],
)
def test_ssrf_keys_are_not_fetched_from_just_anywhere(address: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        jwks_client.check_address(address)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "224.0.0.1", "0.0.0.0"])
def test_ssrf_link_local_and_unspecified_addresses_are_refused(host: str) -> None:
    with pytest.raises(InvalidRequest):
        jwks_client.read(f"https://{host}/keys")


class Issuer:
    """A server of keys on loopback; what it answers can be changed."""

    def __init__(self) -> None:
        self.asked = 0
        self.status, self.body = 200, public()
        self.headers: dict[str, str] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                self.send_response(issuer.status)
                for name, value in issuer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(issuer.body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def issuer() -> Any:
    made = Issuer()
    yield made
    made.close()


def test_ssrf_redirects_are_not_followed(issuer: Issuer) -> None:
    issuer.status, issuer.headers = 302, {"location": "file:///etc/passwd"}
    with pytest.raises(OSError, match="302"):
        jwks_client.read(issuer.address)


def test_an_endless_answer_is_cut(issuer: Issuer) -> None:
    issuer.body = b"x" * (jwks_client.ANSWER_BYTES_MAX + 10)
    with pytest.raises(ValueError, match="more than"):
        jwks_client.read(issuer.address)


async def _asks(issuer: Issuer) -> None:
    clock = ManualClock()
    source = JwksKeySource(issuer.address, clock)
    first = await source.keys()
    assert first is not None
    await source.keys(fresh=True)
    assert issuer.asked == 1, "an unknown key may not make the node hammer the issuer"
    clock.now_s += 31
    await source.keys()
    assert issuer.asked == 1
    newer = await source.keys(fresh=True)
    assert issuer.asked == 2
    clock.now_s += 601
    issuer.body = b"nonsense"
    assert await source.keys() is newer, "what was known stays known when the issuer fails"


async def test_keys_are_fetched_again_when_they_are_old_or_one_is_missing(issuer: Issuer) -> None:
    await _asks(issuer)


async def test_without_any_keys_there_are_none(tmp_path: Path) -> None:
    source = JwksKeySource(str(tmp_path / "absent.json"), ManualClock())
    assert await source.keys() is None


async def test_keys_may_stand_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(public())
    found = await JwksKeySource(str(path), ManualClock()).keys()
    assert found is not None
    assert {key.kid for key in found.keys} == {"rsa", "ec"}
