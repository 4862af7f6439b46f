"""Name patterns with ``*``, ``?`` and ``{user}``, matched without exponential backtracking.

    orders-*        every name that starts with ``orders-``
    app.{user}.*    names that contain the user's own name

``{user}`` is the user's name as plain text: in a user named ``*`` it is no wildcard.
"""

from typing import Final

from mainstem.model.errors import ErrorCode, InvalidRequest

PATTERN_LENGTH_MAX: Final = 512
USER_MARK: Final = "{user}"
_ANY: Final = "*"
_ONE: Final = "?"


class NamePattern:
    """One pattern, cut into characters and wildcards."""

    __slots__ = ("_tokens", "names_user", "text")

    def __init__(self, text: str) -> None:
        if not 0 < len(text) <= PATTERN_LENGTH_MAX:
            raise InvalidRequest(ErrorCode.INVALID_PATTERN, f"a pattern of {len(text)} characters")
        self.text = text
        self.names_user = USER_MARK in text
        # A token is (character, is it a wildcard); None is the place of the user's name.
        self._tokens: list[tuple[str, bool] | None] = []
        for at, piece in enumerate(text.split(USER_MARK)):
            if at:
                self._tokens.append(None)
            self._tokens += [(char, char in (_ANY, _ONE)) for char in piece]

    @property
    def fixed_prefix(self) -> str:
        """The literal prefix of every matching name."""
        prefix = ""
        for token in self._tokens:
            if token is None or token[1]:
                break
            prefix += token[0]
        return prefix

    def matches(self, name: str, user: str = "") -> bool:
        """Whether a name matches, for that user."""
        tokens = self._for(user)
        at = spot = 0
        star, resume = -1, 0
        while at < len(name):
            if spot < len(tokens) and tokens[spot] == (_ANY, True):
                star, resume = spot, at
                spot += 1
            elif spot < len(tokens) and tokens[spot] in ((_ONE, True), (name[at], False)):
                at += 1
                spot += 1
            elif star >= 0:
                # The last star matches one character more; earlier stars never need to.
                resume += 1
                at, spot = resume, star + 1
            else:
                return False
        return all(token == (_ANY, True) for token in tokens[spot:])

    def _for(self, user: str) -> list[tuple[str, bool]]:
        filled: list[tuple[str, bool]] = []
        for token in self._tokens:
            if token is None:
                filled += [(char, False) for char in user]
            else:
                filled.append(token)
        return filled
