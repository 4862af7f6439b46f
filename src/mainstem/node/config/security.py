"""The settings of security and TLS, parts of the tree in ``config``."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS


class TlsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Certificates of the listeners that use TLS. Changed files are reloaded while running."""

    certificate_file: Annotated[
        str | None,
        Meta(description="PEM file with the node's certificate and those between it and the root."),
    ] = None
    key_file: Annotated[
        str | None, Meta(description="PEM file with the certificate's private key, unencrypted.")
    ] = None
    client_ca_file: Annotated[
        str | None,
        Meta(description="PEM file with the authorities whose client certificates are accepted."),
    ] = None
    client_certificates: Annotated[
        Literal["none", "requested", "required"],
        Meta(
            description="Whether clients present a certificate. With `required`, listeners of "
            "kind SSL and HTTPS authenticate clients by it; kinds with SASL authenticate by login."
        ),
    ] = "none"
    name_rules: Annotated[
        tuple[str, ...],
        Meta(
            description="How a certificate's distinguished name becomes a user: Kafka's rules, "
            "such as `RULE:^CN=(.*?),.*$/$1/L`, the first that matches. None: the whole name."
        ),
    ] = ()
    minimum: Annotated[
        Literal["1.2", "1.3"], Meta(description="Oldest version of TLS that is accepted.")
    ] = "1.2"
    reload_interval_ms: Annotated[
        int, Meta(ge=100, description="How often the files are checked for changes.")
    ] = 5 * SECOND_MS


class SecuritySection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Authentication and authorisation."""

    authorise: Annotated[
        Literal["auto", "on", "off"],
        Meta(
            description="Whether access rules are enforced. `auto`: as soon as one listener "
            "authenticates clients."
        ),
    ] = "auto"
    super_users: Annotated[
        tuple[str, ...], Meta(description="Principals that may do everything, such as `User:root`.")
    ] = ()
    allow_everyone_if_no_acl_found: Annotated[
        bool,
        Meta(
            description="Whether every authenticated user may do everything with a topic, group "
            "or other resource that no access rule names, as Kafka's setting of that name. "
            "Rules of roles do not count."
        ),
    ] = False
    trust_loopback: Annotated[
        bool,
        Meta(
            description="Clients of a loopback listener without login may do everything. Switch "
            "it off on machines shared with people you do not trust."
        ),
    ] = True
    admin_password_file: Annotated[
        str | None,
        Meta(
            description="File with the password of the user `admin`, who gets the role of that "
            "name. Set it where the first user cannot be created over loopback."
        ),
    ] = None
    mechanisms: Annotated[
        tuple[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"], ...],
        Meta(
            description="SASL mechanisms of the Kafka listeners. Where a listener without TLS can "
            "be reached by others, only those of SCRAM are served."
        ),
    ] = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
    reauthenticate_ms: Annotated[
        int,
        Meta(
            ge=0,
            description="How long a SASL login is valid before it must be repeated; 0: until the "
            "connection ends. Lower it where users are removed often.",
        ),
    ] = 0
    login_timeout_ms: Annotated[
        int, Meta(ge=SECOND_MS, description="How long a connection may take to log in.")
    ] = 30 * SECOND_MS
    lock_after_failures: Annotated[
        int,
        Meta(
            ge=1,
            description="Wrong logins of one user from one address before that pair is locked.",
        ),
    ] = 5
    lock_ms: Annotated[
        int,
        Meta(
            ge=1,
            description="How long the first lock lasts; each further failure doubles it, up to "
            "five minutes.",
        ),
    ] = SECOND_MS
    connections_per_minute_max: Annotated[
        int,
        Meta(
            ge=0,
            description="New connections of one address on listeners that others can reach; "
            "0: any number. A quota on the address wins.",
        ),
    ] = 600
    audit_file: Annotated[
        str | None,
        Meta(
            description="File for logins, refusals and changes of rights. Unset: "
            "audit.jsonl in the data folder."
        ),
    ] = None
    oauth_issuer: Annotated[
        str | None,
        Meta(description="The issuer that JSON web tokens must name. Unset: none are accepted."),
    ] = None
    oauth_audiences: Annotated[
        tuple[str, ...], Meta(description="Audiences of which a token must name one.")
    ] = ()
    oauth_keys: Annotated[
        str | None,
        Meta(
            description="The issuer's public keys (JWKS): a file, an https:// address, or http:// "
            "on loopback."
        ),
    ] = None
    oauth_user_claim: Annotated[
        str, Meta(min_length=1, description="The claim that names the user.")
    ] = "sub"
    oauth_groups_claim: Annotated[
        str | None,
        Meta(description="The claim that lists groups; rules name them as `Group:<name>`."),
    ] = None
    oauth_algorithms: Annotated[
        tuple[str, ...],
        Meta(description="Signature algorithms that are accepted; shared secrets never."),
    ] = ("RS256", "PS256", "ES256", "EdDSA")
