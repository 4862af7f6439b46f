"""SCRAM on the server's side (RFC 5802): two messages in, the password never seen.

    client-first   n,,n=alice,r=<nonce>            ──▶ r=<nonce+ours>,s=<salt>,i=<iterations>
    client-final   c=biws,r=<nonce+ours>,p=<proof> ──▶ v=<our signature>

For an unknown user the exchange continues with made-up keys (``decoys``) and fails at the proof, so
that user names cannot be probed.
"""

import base64
import binascii
import hmac
from collections.abc import Callable
from typing import Final

from mainstem.model import scram
from mainstem.model.scram import ScramCredential
from mainstem.security.authentication.sasl import (
    LoginProven,
    SendChallenge,
    Step,
    refuse,
    text_of,
    unescaped,
)
from mainstem.security.authentication.scram_decoys import ScramDecoys

NONCE_LENGTH_MAX: Final = 1_024
TOKEN_EXTENSION: Final = "tokenauth"  # noqa: S105 - the name of a SCRAM extension in Kafka

FindCredential = Callable[[str, str], ScramCredential | None]  # (user, mechanism)


class CredentialLookup:
    """Look-up of keys for an exchange: those of users and of delegation tokens."""

    def __init__(
        self, of_user: FindCredential, of_token: FindCredential, decoys: ScramDecoys
    ) -> None:
        self.of_user = of_user
        self.of_token = of_token
        self.decoys = decoys


class ScramServer:
    """The server side of one SCRAM exchange."""

    def __init__(self, mechanism: str, keys: CredentialLookup, nonce: str) -> None:
        self._mechanism = mechanism
        self._keys = keys
        self._our_nonce = nonce
        self.user = ""
        self._by_token = False
        self._credential: ScramCredential | None = None
        self._is_real = False
        self._header = ""
        self._nonce = ""
        self._auth_message = ""

    def step(self, data: bytes) -> Step:
        """Take the first or the final message."""
        if self._credential is None:
            return self._first(text_of(data))
        return self._final(text_of(data), self._credential)

    def _first(self, message: str) -> SendChallenge:
        flag, comma, rest = message.partition(",")
        authzid, comma2, bare = rest.partition(",")
        if flag not in ("n", "y") or not (comma and comma2):
            refuse("channel binding is not supported, or this is not SCRAM")
        parts = bare.split(",")
        if len(parts) < 2 or not parts[0].startswith("n=") or not parts[1].startswith("r="):
            refuse("a first message without name and nonce")
        self.user = unescaped(parts[0][2:])
        nonce = parts[1][2:]
        if not self.user or not 0 < len(nonce) <= NONCE_LENGTH_MAX or not nonce.isascii():
            refuse("an empty name or a bad nonce", user=self.user)
        extensions = dict(part.partition("=")[::2] for part in parts[2:])
        self._by_token = extensions.get(TOKEN_EXTENSION) == "true"
        if authzid not in ("", f"a={parts[0][2:]}"):
            refuse("the authorization id is another user", user=self.user)
        keys, decoys = self._keys, self._keys.decoys
        find, made_up = keys.of_user, decoys.of_user
        if self._by_token:
            find, made_up = keys.of_token, decoys.of_token
        found = find(self.user, self._mechanism)
        self._is_real = found is not None
        self._credential = found or made_up(self.user, self._mechanism)
        self._header = f"{flag},{authzid},"
        self._nonce = nonce + self._our_nonce
        salt = base64.b64encode(self._credential.salt).decode()
        reply = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._auth_message = f"{bare},{reply}"
        return SendChallenge(reply.encode())

    def _final(self, message: str, credential: ScramCredential) -> LoginProven:
        without_proof, comma, proof = message.rpartition(",")
        parts = without_proof.split(",")
        binding = base64.b64encode(self._header.encode()).decode()
        if not comma or not proof.startswith("p=") or len(parts) < 2:
            refuse("a final message without proof", user=self.user)
        if parts[0] != f"c={binding}" or parts[1] != f"r={self._nonce}":
            refuse("a message of another exchange", user=self.user)
        auth_message = f"{self._auth_message},{without_proof}".encode()
        mechanism = self._mechanism
        signature = scram.keyed(mechanism, credential.stored_key, auth_message)
        shown = _decoded(proof[2:])
        fits = len(shown) == len(signature)
        key = scram.exclusive_or(shown, signature) if fits else b""
        right = hmac.compare_digest(scram.digest(mechanism, key), credential.stored_key)
        if not (right and self._is_real):
            refuse("wrong password" if self._is_real else "no such user", user=self.user)
        ours = scram.keyed(mechanism, credential.server_key, auth_message)
        answer = f"v={base64.b64encode(ours).decode()}"
        return LoginProven(self.user, answer.encode(), by_token=self._by_token)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
