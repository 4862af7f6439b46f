"""An issuer of tokens on loopback: its keys, and an endpoint where clients get tokens."""

import base64
import binascii
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

if TYPE_CHECKING:
    from collections.abc import Callable

ISSUER, AUDIENCE = "https://issuer.test", "mainstem"
KEY = RSAKey.generate_key(2048, {"kid": "one"})


def token(user: str, **claims: object) -> str:
    """A token of that user; ``claims`` replace what it would say."""
    now = int(time.time())
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + 600, **claims}
    return jwt.encode({"alg": "RS256", "kid": "one"}, said, KEY)


class Issuer:
    """Serves ``/keys`` and ``/token``, whose client id is the user that the token names.

    ``flaws`` makes tokens of some users wrong. Other paths count as visits that nobody should make.
    """

    def __init__(self) -> None:
        issuer = self
        self.flaws: dict[str, Callable[[], str]] = {}
        self.asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                self._answer(dict(KeySet([KEY]).as_dict(private=False)))

            def do_POST(self) -> None:
                issuer.asked.append(self.path)
                self.rfile.read(int(self.headers.get("content-length", "0")))
                user = self._user()
                made = issuer.flaws.get(user, lambda: token(user))()
                self._answer({"access_token": made, "token_type": "Bearer", "expires_in": 600})

            def _user(self) -> str:
                _, _, words = self.headers.get("authorization", "").partition(" ")
                try:
                    return base64.b64decode(words).decode().partition(":")[0]
                except (binascii.Error, UnicodeDecodeError):
                    return ""

            def _answer(self, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *_: object) -> None:  # noqa: A002
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        """Where it is."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def settings(self) -> dict[str, object]:
        """What a node must know to take its tokens."""
        return {
            "security.oauth_issuer": ISSUER,
            "security.oauth_audiences": AUDIENCE,
            "security.oauth_keys": f"{self.address}/keys",
        }
