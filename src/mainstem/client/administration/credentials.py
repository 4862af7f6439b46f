"""Administration of SCRAM credentials: which users have a password, for which mechanisms.

A new password is not sent: the request holds the salted password, from which the node derives its
keys. Intercepted, that is enough to log in, so use TLS.
"""

import asyncio
import secrets
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from mainstem.client import errors
from mainstem.client.cluster import Cluster
from mainstem.model import scram
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from mainstem.wire.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_WORDS: Final = {number: name for name, number in MECHANISMS.items()}


class UserCredentials(Struct, frozen=True):
    """One user: mechanisms with the number of iterations of each."""

    name: str
    iterations: dict[str, int]


class CredentialAdmin:
    """Administers passwords; reached through ``Admin.credentials``."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def users(self, names: Collection[str] | None = None) -> list[UserCredentials]:
        """Users with a password, by name; all of them, or the given ones.

        Raises:
            InvalidRequest: a given user does not exist.
        """
        asked = None if names is None else [UserName(name) for name in dict.fromkeys(names)]

        async def attempt() -> list[UserCredentials]:
            response: DescribeUserScramCredentialsResponse = await self._cluster.call_any(
                DescribeUserScramCredentialsRequest(asked), timeout_ms=self._timeout_ms
            )
            errors.check(response.error_code, response.error_message, subject="users")
            found = []
            for result in response.results:
                errors.check(result.error_code, result.error_message, subject=result.user)
                kept = {
                    _WORDS.get(each.mechanism, str(each.mechanism)): each.iterations
                    for each in result.credential_infos
                }
                found.append(UserCredentials(result.user, kept))
            return sorted(found, key=lambda user: user.name)

        return await self._cluster.retrying(attempt, timeout_ms=self._timeout_ms)

    async def user(self, name: str) -> UserCredentials | None:
        """One user; None if no user of that name has a password."""
        try:
            [found] = await self.users([name])
        except InvalidRequest as error:
            if error.code is ErrorCode.UNKNOWN_RESOURCE:
                return None
            raise
        return found

    async def set_password(
        self,
        user: str,
        password: str,
        *,
        mechanisms: Sequence[str] = tuple(MECHANISMS),
        iterations: int = scram.ITERATIONS_MIN,
    ) -> None:
        """Sets the password of a user for these mechanisms and removes keys of other mechanisms.

        Raises:
            InvalidRequest: the password or the number of iterations is not accepted.
        """
        unknown = [name for name in mechanisms if name not in MECHANISMS]
        if unknown or not mechanisms:
            raise InvalidRequest(
                ErrorCode.UNSUPPORTED_MECHANISM,
                f"no keys can be made for {', '.join(unknown) or 'no mechanism'}",
                subject=user,
                remedy=f"use {', '.join(MECHANISMS)}",
            )
        upserts = [
            await asyncio.to_thread(_upsertion, user, password, name, iterations)
            for name in dict.fromkeys(mechanisms)
        ]
        known = await self.user(user)
        held = {} if known is None else known.iterations
        stale = [name for name in held if name in MECHANISMS and name not in mechanisms]
        await self._alter(user, upserts, stale)

    async def delete(self, user: str) -> None:
        """Removes all keys of a user.

        Raises:
            InvalidRequest: the user does not exist.
        """
        [known] = await self.users([user])
        await self._alter(user, [], list(known.iterations))

    async def _alter(
        self, user: str, upserts: Sequence[ScramCredentialUpsertion], deletions: Sequence[str]
    ) -> None:
        """Sends all changes of one user in one request; Apache Kafka requires one request each."""
        gone = [ScramCredentialDeletion(user, MECHANISMS[name]) for name in deletions]
        try:
            await self._send(gone, upserts)
        except InvalidRequest as error:
            if error.code is not ErrorCode.DUPLICATE_RESOURCE or len(upserts) + len(gone) < 2:
                raise
            for upsert in upserts:
                await self._send([], [upsert])
            for deletion in gone:
                await self._send([deletion], [])

    async def _send(
        self,
        deletions: Sequence[ScramCredentialDeletion],
        upserts: Sequence[ScramCredentialUpsertion],
    ) -> None:
        request = AlterUserScramCredentialsRequest(list(deletions), list(upserts))
        response: AlterUserScramCredentialsResponse = await self._cluster.call_controller(
            request, timeout_ms=self._timeout_ms
        )
        for result in response.results:
            errors.check(result.error_code, result.error_message, subject=result.user)


def _upsertion(
    user: str, password: str, mechanism: str, iterations: int
) -> ScramCredentialUpsertion:
    salt = secrets.token_bytes(scram.SALT_BYTES)
    salted = scram.salted_password(mechanism, password, salt, iterations)
    return ScramCredentialUpsertion(user, MECHANISMS[mechanism], iterations, salt, salted)
