"""SCRAM against a client written from RFC 5802: the right password gets in, nothing else does."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mainstem.model import scram as arithmetic
from mainstem.model.scram import ScramCredential
from mainstem.security.authentication.sasl import LoginProven, LoginRefused, SendChallenge
from mainstem.security.authentication.scram import CredentialLookup, ScramServer
from mainstem.security.authentication.scram_decoys import ScramDecoys

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = st.sampled_from(sorted(HASHES))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NAMES = TEXTS.filter(lambda name: "\0" not in name)
NONCES = st.text("abcXYZ019+/-._", min_size=1, max_size=30)
SALTS = st.binary(min_size=1, max_size=40)
ITERATIONS = st.integers(1, 50)  # the arithmetic is the same for 4,096, and a hundred times slower


def server(mechanism: str, credential: ScramCredential, user: str, nonce: str) -> ScramServer:
    def find(name: str, wanted: str) -> ScramCredential | None:
        return credential if (name, wanted) == (user, mechanism) else None

    return ScramServer(
        mechanism, CredentialLookup(find, lambda *_: None, ScramDecoys(lambda: b"secret")), nonce
    )


class Client:
    """RFC 5802, section 3, line by line."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self.hash = HASHES[mechanism]
        self.password = password
        name = user.replace("=", "=3D").replace(",", "=2C")
        self.bare = f"n={name},r={nonce}"
        self.first = f"n,,{self.bare}"
        self.expected = b""

    def final(self, challenge: bytes, **lies: str) -> str:
        """The answer; ``lies`` stand in its parts c and r instead and are signed."""
        told = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac(
            self.hash, self.password.encode(), base64.b64decode(told["s"]), int(told["i"])
        )
        client_key = hmac.digest(salted, b"Client Key", self.hash)
        stored_key = hashlib.new(self.hash, client_key).digest()
        without_proof = f"c={lies.get('c', 'biws')},r={lies.get('r', told['r'])}"
        said = f"{self.bare},{challenge.decode()},{without_proof}".encode()
        signature = hmac.digest(stored_key, said, self.hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self.expected = hmac.digest(hmac.digest(salted, b"Server Key", self.hash), said, self.hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}"


def challenge_of(made: ScramServer, message: bytes) -> bytes:
    step = made.step(message)
    assert isinstance(step, SendChallenge)
    return step.data


@given(MECHANISMS, NAMES, TEXTS, SALTS, ITERATIONS, st.tuples(NONCES, NONCES))
def test_the_right_password_proves_both_sides(
    mechanism: str, user: str, password: str, salt: bytes, iterations: int, nonces: tuple[str, str]
) -> None:
    credential = arithmetic.make_credential(mechanism, password, salt=salt, iterations=iterations)
    made = server(mechanism, credential, user, nonces[0])
    client = Client(mechanism, user, password, nonces[1])
    final = client.final(challenge_of(made, client.first.encode()))
    step = made.step(final.encode())
    assert isinstance(step, LoginProven)
    assert (step.user, step.by_token) == (user, False)
    assert base64.b64decode(step.data.removeprefix(b"v=")) == client.expected


@given(MECHANISMS, NAMES, TEXTS, TEXTS, SALTS, ITERATIONS)
def test_any_other_password_is_refused(
    mechanism: str, user: str, password: str, wrong: str, salt: bytes, iterations: int
) -> None:
    assume(wrong != password)
    credential = arithmetic.make_credential(mechanism, password, salt=salt, iterations=iterations)
    # HMAC fills short keys up with zeros, so these two are one password to SCRAM everywhere.
    assume(wrong.rstrip("\0") != password.rstrip("\0"))
    made = server(mechanism, credential, user, "ours")
    client = Client(mechanism, user, wrong, "theirs")
    final = client.final(challenge_of(made, client.first.encode()))
    with pytest.raises(LoginRefused):
        made.step(final.encode())


@settings(max_examples=300)
@given(
    MECHANISMS,
    TEXTS,
    st.booleans(),
    st.integers(0, 10_000),
    st.integers(0, 255),
    st.sampled_from(["change", "insert", "remove"]),
)
def test_an_exchange_with_one_byte_tampered_with_is_refused(
    mechanism: str, password: str, first: bool, spot: int, byte: int, how: str
) -> None:
    credential = arithmetic.make_credential(mechanism, password, salt=b"salt", iterations=7)
    made = server(mechanism, credential, "alice", "ours")
    client = Client(mechanism, "alice", password, "theirs")

    def tampered(message: bytes) -> bytes:
        at = spot % len(message)
        middle = {"change": bytes([byte]), "insert": bytes([byte, message[at]]), "remove": b""}
        return message[:at] + middle[how] + message[at + 1 :]

    opening = client.first.encode()
    if first:
        assume(tampered(opening) != opening)
        opening = tampered(opening)

    def exchange() -> None:
        # The client is honest: it answers what it believes to have been asked.
        final = client.final(challenge_of(made, opening)).encode()
        if not first:
            assume(tampered(final) != final and not same_proof(tampered(final), final))
            final = tampered(final)
        made.step(final)

    with pytest.raises(LoginRefused):
        exchange()


@given(MECHANISMS, TEXTS, st.sampled_from(["c", "r"]), st.text("abcn=,y ", max_size=6))
def test_who_knows_the_password_cannot_sign_for_another_exchange(
    mechanism: str, password: str, part: str, lie: str
) -> None:
    credential = arithmetic.make_credential(mechanism, password, salt=b"salt", iterations=7)
    made = server(mechanism, credential, "alice", "ours")
    client = Client(mechanism, "alice", password, "theirs")
    final = client.final(challenge_of(made, client.first.encode()), **{part: lie})
    with pytest.raises(LoginRefused):
        made.step(final.encode())


def same_proof(left: bytes, right: bytes) -> bool:
    """Base64 has bits to spare at its end: other letters, the same proof."""
    rest, _, proof = left.rpartition(b",p=")
    other_rest, _, other = right.rpartition(b",p=")
    try:
        decoded = base64.b64decode(proof, validate=True)
    except ValueError:
        return False
    return rest == other_rest and decoded == base64.b64decode(other)


@given(MECHANISMS, NAMES, TEXTS, NONCES)
def test_nobody_is_refused_as_late_and_as_silently_as_a_wrong_password(
    mechanism: str, user: str, password: str, nonce: str
) -> None:
    credential = arithmetic.make_credential(mechanism, "x", salt=b"s" * 24, iterations=4_096)
    said = []
    for known in ("somebody else", user):
        made = server(mechanism, credential, known, "ours")
        if known == user:
            assume(password != "x")
        client = Client(mechanism, user, password, nonce)
        told = challenge_of(made, client.first.encode())
        parts = dict(part.split("=", 1) for part in told.decode().split(","))
        with pytest.raises(LoginRefused) as refusal:
            made.step(client.final(told).encode())
        said.append((len(base64.b64decode(parts["s"])), parts["i"], str(refusal.value)))
    assert said[0] == said[1]


@given(MECHANISMS, st.binary(max_size=80), st.binary(max_size=80))
def test_whatever_arrives_is_refused_and_nothing_worse(
    mechanism: str, first: bytes, final: bytes
) -> None:
    credential = arithmetic.make_credential(mechanism, "x", salt=b"salt", iterations=1)
    for opening in (first, b"n,,n=alice,r=" + first, b"n,,n=alice,r=abc"):
        made = server(mechanism, credential, "alice", "ours")
        try:
            made.step(opening)
        except LoginRefused:
            continue
        with pytest.raises(LoginRefused):
            made.step(final)
