"""Maps the certificate of a client to the name of a principal, by Kafka's mapping rules.

    RULE:^CN=(.*?),OU=ops.*$/$1/L      the first that matches decides; L and U change case
    DEFAULT                            the whole distinguished name

Expressions are RE2, whose matching time is linear: names come from clients.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import re2

from mainstem.model.errors import ErrorCode, InvalidRequest

DEFAULT: Final = "DEFAULT"
NAME_LENGTH_MAX: Final = 4_096

_RULE: Final = re.compile(
    r"RULE:(?P<pattern>(?:\\.|[^/\\])*)/(?P<form>(?:\\.|[^/\\])*)/(?P<case>[LU]?)"
)
_GROUP: Final = re.compile(r"\$(\d)")
_SHORT: Final = {
    "commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU",
    "countryName": "C", "stateOrProvinceName": "ST", "localityName": "L",
    "domainComponent": "DC", "userId": "UID", "streetAddress": "STREET",
    "emailAddress": "EMAILADDRESS",
}  # fmt: skip

Subject = Iterable[Iterable[tuple[str, str]]]  # as the ssl module returns it


class NameRule:
    """One mapping."""

    def __init__(self, text: str) -> None:
        if text == DEFAULT:
            self._pattern = None
            return
        found = _RULE.fullmatch(text)
        if found is None:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"{text!r} is not a mapping",
                remedy="write DEFAULT or RULE:pattern/replacement/ with L or U at its end",
            )
        options = re2.Options()
        options.log_errors = False
        try:
            self._pattern = re2.compile(found["pattern"].replace("\\/", "/"), options)
        except re2.error as error:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG, f"{found['pattern']!r} is not an RE2 expression"
            ) from error
        self._form = found["form"].replace("\\/", "/")
        self._case = found["case"]

    def name(self, subject: str) -> str | None:
        """The mapped name; None where the rule does not match."""
        if self._pattern is None:
            return subject
        found = self._pattern.fullmatch(subject)
        if found is None:
            return None
        groups: Sequence[str | None] = (found.group(0), *found.groups())

        def part(mark: re.Match[str]) -> str:
            at = int(mark[1])
            return (groups[at] or "") if at < len(groups) else ""

        # What was matched goes in as text: a "$2" in a certificate is two characters.
        name = _GROUP.sub(part, self._form)
        return {"L": name.lower(), "U": name.upper()}.get(self._case, name)


class NameRules:
    """Mappings in order; without any, the distinguished name is the name."""

    def __init__(self, rules: Sequence[str] = ()) -> None:
        self._rules = [NameRule(text) for text in rules or (DEFAULT,)]

    def name(self, subject: Subject) -> str | None:
        """The principal's name; None where no rule matches, which means no login."""
        text = distinguished_name(subject)
        if not text or len(text) > NAME_LENGTH_MAX:
            return None
        for rule in self._rules:
            name = rule.name(text)
            if name is not None:
                return name or None
        return None


def distinguished_name(subject: Subject) -> str:
    """The subject in the order and form of RFC 2253: most specific first, specials escaped."""
    parts = [
        "+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in attributes)
        for attributes in subject
    ]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1:
        text = text[:-1] + "\\ "
    return text
