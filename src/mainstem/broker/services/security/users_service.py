"""User service: passwords and SCRAM keys."""

from collections.abc import Mapping, Sequence

from mainstem.broker.api.security import Caller, Credentials, ScramCredential
from mainstem.broker.services.security.changes_service import SecurityChanges
from mainstem.placement.changes.security_commands import AlterScram, DeleteUser, SetCredentials
from mainstem.security.authentication.login_service import LoginService


class UserService:
    """The ``Users`` of one node."""

    def __init__(self, changes: SecurityChanges, logins: LoginService) -> None:
        self._changes = changes
        self._logins = logins

    def all(self) -> Mapping[str, Credentials]:
        """Every user with a password."""
        return self._changes.table.users

    async def set_password(self, caller: Caller, user: str, password: str) -> None:
        """Give a user a password for every mechanism."""
        credentials = await self._logins.make_credentials(password)
        await self._changes.submit(SetCredentials(user, credentials))
        self._changes.record(caller, "password set", user)

    async def alter_scram(
        self,
        caller: Caller,
        user: str,
        upserts: Sequence[ScramCredential],
        deletions: Sequence[str],
    ) -> None:
        """Replace and remove SCRAM keys of a user."""
        await self._changes.submit(AlterScram(user, tuple(upserts), tuple(deletions)))
        self._changes.record(caller, "credential changed", user)

    async def delete(self, caller: Caller, user: str) -> None:
        """Delete a user's password, roles and tokens."""
        await self._changes.submit(DeleteUser(user))
        self._changes.record(caller, "user deleted", user)
