"""Users, rules, roles, quotas and tokens from the command line, against a node that asks."""

import json
import stat
from pathlib import Path

import pytest
import yaml
from tests.integration.cli.secured import Shell, somebody

from mainstem.cli.errors import ExitCode

NOBODY = {"MAINSTEM_USER": "", "MAINSTEM_PASSWORD": ""}


# Users


def test_a_user_lives_from_create_to_delete(shell: Shell) -> None:
    login = shell.make_user("life")
    assert "life" in shell("user", "list")
    shell("topic", "list", login=login)
    changed = json.loads(shell("user", "password", "life", "--generate", "-o", "json"))
    shell("topic", "list", login=login, ends_with=ExitCode.NOT_ALLOWED)
    login = somebody("life", changed["password"])
    shell("topic", "list", login=login)
    shell("acl", "create", "--allow", "life", "-O", "read", "--topic", "life")
    assert shell("user", "delete", "life", "--with-rules") == "deleted life and 1 access rule\n"
    shell("topic", "list", login=login, ends_with=ExitCode.NOT_ALLOWED)
    assert shell("acl", "list", "--principal", "life", "-o", "json") == "[]\n"


def test_a_password_works_with_every_mechanism_it_has_keys_for(shell: Shell) -> None:
    login = shell.make_user("mechanic")
    for mechanism in ("SCRAM-SHA-512", "scram-sha-256", "PLAIN"):
        shell("topic", "list", "--mechanism", mechanism, login=login)
    made = shell("user", "password", "mechanic", "--generate", "--keys", "scram-sha-256",
                 "-o", "json")  # fmt: skip
    login = somebody("mechanic", json.loads(made)["password"])
    shell("topic", "list", "--mechanism", "SCRAM-SHA-256", login=login)
    # The key that was left from the old password must not let anybody in.
    assert "SCRAM-SHA-512" not in shell("user", "describe", "mechanic")
    shell("topic", "list", login=login, ends_with=ExitCode.NOT_ALLOWED)


def test_a_user_is_made_once(shell: Shell) -> None:
    shell.make_user("once")
    error = shell("user", "create", "once", "--generate", ends_with=ExitCode.CONFLICT)
    assert "DUPLICATE_RESOURCE [once]" in error
    assert shell("user", "create", "once", "--generate", "--if-not-exists") == (
        "once already exists\n"
    )


@pytest.mark.parametrize("command", [["password", "--generate"], ["describe"], ["delete"]])
def test_an_unknown_user_is_not_found(shell: Shell, command: list[str]) -> None:
    verb, *rest = command
    error = shell("user", verb, "nobody-knows", *rest, ends_with=ExitCode.NOT_FOUND)
    assert "error: UNKNOWN_RESOURCE [nobody-knows]: there is no such user" in error
    assert "help:  " in error


def test_a_user_is_described_with_roles_tokens_and_rules(shell: Shell) -> None:
    login = shell.make_user("whole")
    shell("role", "grant", "producer", "whole")
    shell("acl", "create", "--deny", "User:whole", "-O", "write", "--topic", "secret-",
          "--pattern", "prefixed")  # fmt: skip
    shell("token", "create", login=login)
    told = json.loads(shell("user", "describe", "whole", "-o", "json"))
    assert told["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert told["roles"] == ["producer"]
    assert len(told["tokens"]) == 1
    [rule] = told["rules"]
    assert (rule["permission"], rule["operation"], rule["name"], rule["pattern"]) == (
        "deny", "write", "secret-", "prefixed",
    )  # fmt: skip
    shown = shell("user", "describe", "whole")
    assert "producer" in shown
    assert "secret-" in shown


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["--generate", "--stdin"], "exclude each other"),
        ([], "no terminal to prompt on"),
        (["--new-password-file", "/nowhere"], "cannot be used"),
    ],
)
def test_a_new_password_is_given_in_one_way(shell: Shell, words: list[str], cause: str) -> None:
    assert cause in shell("user", "create", "undecided", *words, ends_with=ExitCode.USAGE)


# Logins and rights


def test_a_wrong_password_says_no_more_than_an_unknown_user(shell: Shell) -> None:
    shell.make_user("guessed")
    wrong = shell("topic", "list", login=somebody("guessed", "x"), ends_with=ExitCode.NOT_ALLOWED)
    unknown = shell("topic", "list", login=somebody("ghost", "x"), ends_with=ExitCode.NOT_ALLOWED)
    assert wrong == unknown
    assert "error: AUTHENTICATION_FAILED [127.0.0.1:" in wrong
    assert "help:  " in wrong
    over_http = shell(
        "role", "list", login=somebody("guessed", "x"), ends_with=ExitCode.NOT_ALLOWED
    )
    assert "AUTHENTICATION_FAILED [http://" in over_http


@pytest.mark.parametrize(
    "words",
    [
        ["user", "list"],
        ["user", "create", "other", "--generate"],
        ["user", "delete", "admin"],
        ["acl", "list"],
        ["acl", "create", "--allow", "powerless", "-O", "all", "--topic", "*"],
        ["acl", "delete", "--all", "--yes"],
        ["role", "list"],
        ["role", "create", "mine", "-O", "all", "--topic", "*"],
        ["role", "grant", "admin", "powerless"],
        ["role", "revoke", "admin", "admin"],
        ["role", "delete", "mine"],
        ["quota", "list"],
        ["quota", "set", "user=powerless", "-l", "request_rate=1e9"],
        ["token", "create", "--owner", "admin"],
        ["delegation-token", "create", "--owner", "admin"],
        ["topic", "create", "not-allowed"],
        ["produce", "not-allowed", "x"],
    ],
    ids=" ".join,
)
def test_a_missing_right_is_refused_with_code_cause_and_remedy(
    shell: Shell, words: list[str]
) -> None:
    if "powerless" not in shell("user", "list"):
        shell.make_user("powerless")
    login = somebody("powerless", "battery staple")
    told = shell(*words, "-o", "json", login=login, ends_with=ExitCode.NOT_ALLOWED)
    error = json.loads(told)["error"]
    assert error["code"].endswith("_AUTHORIZED")
    assert error["cause"]
    assert error["subject"]
    assert error["remedy"]
    assert error["exit_code"] == ExitCode.NOT_ALLOWED


# Rules


def test_rules_are_made_found_and_deleted(shell: Shell) -> None:
    login = shell.make_user("ruled")
    shell("topic", "create", "ruled")
    shell("produce", "ruled", "x", login=login, ends_with=ExitCode.NOT_ALLOWED)
    shell("acl", "create", "--allow", "ruled", "--producer", "--consumer", "--topic", "ruled",
          "--group", "ruled-", "--pattern", "prefixed")  # fmt: skip
    shell("produce", "ruled", "x", login=login)
    assert shell("consume", "ruled", "--group", "ruled-1", "--from-beginning", login=login) == "x\n"
    found = json.loads(shell("acl", "list", "--topic", "ruled-more", "-o", "json"))
    assert {rule["operation"] for rule in found if rule["principal"] == "User:ruled"} == {
        "read", "write", "create",
    }  # fmt: skip
    # A name means literal rules unless more is said: nothing is lost by a guess.
    shell("acl", "delete", "--topic", "ruled", "--yes", ends_with=ExitCode.NOT_FOUND)
    shell("acl", "delete", "--topic", "ruled", "--yes", "--if-exists")
    words = ["acl", "delete", "--topic", "ruled", "--pattern", "prefixed", "--yes"]
    assert shell(*words, "--dry-run").count("User:ruled") == 3
    assert shell(*words).count("User:ruled") == 3
    shell("produce", "ruled", "x", login=login, ends_with=ExitCode.NOT_ALLOWED)


def test_a_glob_finds_its_own_user(shell: Shell) -> None:
    mine, yours = shell.make_user("glob-a"), shell.make_user("glob-b")
    shell("acl", "create", "--allow", "User:*", "-O", "all", "--topic", "home.{user}.*",
          "--pattern", "glob")  # fmt: skip
    shell("topic", "create", "home.glob-a.inbox", login=mine)
    shell("topic", "create", "home.glob-a.other", login=yours, ends_with=ExitCode.NOT_ALLOWED)
    assert "glob" in shell("acl", "list", "--topic", "home.{user}.*", "--pattern", "glob")


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["create", "--allow", "a", "--topic", "t"], "a rule needs a principal"),
        (["create", "--topic", "t", "-O", "read"], "a rule needs a principal"),
        (["create", "--allow", "a", "--consumer", "--topic", "t"], "as a group"),
        (["create", "--allow", "a", "-O", "read", "--resource", "topic"], "a kind and a name"),
        (["delete"], "no rules are selected"),
        (["delete", "--all", "--principal", "a"], "no rules are selected"),
    ],
    ids=str,
)
def test_a_rule_that_says_too_little_is_not_understood(
    shell: Shell, words: list[str], cause: str
) -> None:
    assert cause in shell("acl", *words, ends_with=ExitCode.USAGE)


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["-O", "fly", "--topic", "t"], "'fly' is not an operation"),
        (["-O", "read", "--resource", "moon=x"], "'moon' is not a kind of resource"),
        (["-O", "read", "--topic", "t", "--pattern", "any"], "'any' is not a kind of pattern"),
        (["-O", "write", "--group", "g"], "WRITE is not an operation of GROUP"),
    ],
    ids=str,
)
def test_a_rule_that_cannot_be_is_refused(shell: Shell, words: list[str], cause: str) -> None:
    assert cause in shell("acl", "create", "--allow", "a", *words, ends_with=ExitCode.FAILED)


# Roles


def test_a_role_is_made_given_taken_and_deleted(shell: Shell, tmp_path: Path) -> None:
    login = shell.make_user("actor")
    more = tmp_path / "rules.yaml"
    more.write_text(yaml.safe_dump([{"resource": "group", "operation": "read", "name": "stage"}]))
    made = shell("role", "create", "stage", "-O", "write", "-O", "create", "--topic", "stage-",
                 "--pattern", "prefixed", "--file", str(more))  # fmt: skip
    assert made == "role stage has 3 rules\n"
    shell("role", "create", "stage", "-O", "read", "--topic", "x", ends_with=ExitCode.CONFLICT)
    shell("role", "grant", "stage", "actor", "Group:troupe")
    shell("produce", "stage-1", "x", login=login)
    told = json.loads(shell("role", "describe", "stage", "-o", "json"))
    assert told["members"] == ["Group:troupe", "User:actor"]
    assert {(rule["operation"], rule["pattern"]) for rule in told["rules"]} == {
        ("write", "prefixed"), ("create", "prefixed"), ("read", "literal"),
    }  # fmt: skip
    assert "stage-" in shell("role", "describe", "stage")
    shell("role", "create", "stage", "-O", "read", "--topic", "x", "--replace")
    shell("produce", "stage-1", "x", login=login, ends_with=ExitCode.NOT_ALLOWED)
    shell("role", "revoke", "stage", "actor")
    shell("role", "revoke", "stage", "actor", ends_with=ExitCode.NOT_FOUND)
    assert shell("role", "delete", "stage", "--yes") == "deleted stage\n"
    error = shell("role", "describe", "stage", ends_with=ExitCode.NOT_FOUND)
    assert "UNKNOWN_RESOURCE [stage]: there is no such role" in error


def test_built_in_roles_are_listed_and_stay(shell: Shell) -> None:
    listed = json.loads(shell("role", "list", "-o", "json"))
    assert {role["name"] for role in listed if role["built_in"]} == {
        "admin", "producer", "consumer", "read-only",
    }  # fmt: skip
    error = shell("role", "delete", "consumer", ends_with=ExitCode.FAILED)
    assert "POLICY_VIOLATION [consumer]" in error
    shell("role", "grant", "no-such-role", "admin", ends_with=ExitCode.NOT_FOUND)


def test_a_role_without_rules_is_not_understood(shell: Shell, tmp_path: Path) -> None:
    assert "needs rules" in shell("role", "create", "empty", ends_with=ExitCode.USAGE)
    bad = tmp_path / "rules.yaml"
    bad.write_text("resource: topic\n")
    words = ["role", "create", "empty", "--file", str(bad)]
    assert "not a list of rules" in shell(*words, ends_with=ExitCode.USAGE)


# Quotas


def test_limits_are_set_listed_and_taken_away(shell: Shell) -> None:
    shell("quota", "set", "user=limited", "-l", "producer_byte_rate=10MB", "-l", "request_rate=50")
    shell("quota", "set", "user=limited", "client-id", "-l", "consumer-byte-rate=1Mi")
    shell("quota", "set", "ip=192.0.2.1", "-l", "connection_creation_rate=2")
    found = json.loads(shell("quota", "list", "user=limited", "-o", "json"))
    assert {"entity": {"user": "limited"},
            "limits": {"producer_byte_rate": 1e7, "request_rate": 50.0}} in found  # fmt: skip
    assert {"entity": {"client-id": None, "user": "limited"},
            "limits": {"consumer_byte_rate": 2.0**20}} in found  # fmt: skip
    [line] = [each for each in shell("quota", "list").splitlines() if each.startswith("ip=")]
    assert line.split() == ["ip=192.0.2.1", "connection_creation_rate", "2"]
    shell("quota", "delete", "user=limited", "-l", "request_rate")
    assert "request_rate" not in shell("quota", "list", "user=limited")
    shell("quota", "delete", "user=limited")
    shell("quota", "delete", "user=limited", ends_with=ExitCode.NOT_FOUND)
    shell("quota", "delete", "user=limited", "--if-exists")
    shell("quota", "delete", "user=limited", "client-id")
    shell("quota", "delete", "ip=192.0.2.1")
    assert shell("quota", "list", "-o", "json") == "[]\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["set", "planet=earth", "-l", "request_rate=1"], ExitCode.USAGE),
        (["set", "user=a", "-l", "request_rate"], ExitCode.USAGE),
        (["set", "user=a", "-l", "request_rate=fast"], ExitCode.USAGE),
        (["set", "user=a", "-l", "lights=1"], ExitCode.FAILED),
        (["set", "user=a", "ip=192.0.2.1", "-l", "request_rate=1"], ExitCode.FAILED),
    ],
    ids=str,
)
def test_a_limit_that_cannot_be_is_refused(shell: Shell, words: list[str], code: ExitCode) -> None:
    assert "error: INVALID_REQUEST" in shell("quota", *words, ends_with=code)


# Tokens


def test_an_api_token_stands_for_its_owner_until_it_is_revoked(
    shell: Shell, tmp_path: Path
) -> None:
    login = shell.make_user("owner")
    shell("role", "grant", "producer", "owner")
    file = tmp_path / "token"
    made = shell("token", "create", "ci", "--lifetime", "30d", "--file", str(file), "-o", "json",
                 login=login)  # fmt: skip
    token = json.loads(made)
    assert "token" not in token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    by_token = ["--token-file", str(file)]
    shell("produce", "tokens", "x", *by_token, login=NOBODY)
    [shown] = json.loads(shell("token", "list", "-o", "json", *by_token, login=NOBODY))
    assert (shown["owner"], shown["name"], shown["id"]) == ("User:owner", "ci", token["id"])
    refused = shell("token", "create", *by_token, login=NOBODY, ends_with=ExitCode.NOT_ALLOWED)
    assert "TOKEN_REQUEST_REFUSED" in refused
    shell("token", "revoke", token["id"])
    shell("produce", "tokens", "x", *by_token, login=NOBODY, ends_with=ExitCode.NOT_ALLOWED)
    shell("token", "revoke", token["id"], ends_with=ExitCode.NOT_FOUND)


def test_an_administrator_makes_a_token_that_may_do_less_than_its_owner(shell: Shell) -> None:
    shell.make_user("modest")
    shell("role", "grant", "producer", "modest")
    made = shell("token", "create", "--owner", "modest", "--role", "consumer", "-o", "json")
    login = NOBODY | {"MAINSTEM_TOKEN": json.loads(made)["token"]}
    error = shell("topic", "create", "modest", login=login, ends_with=ExitCode.NOT_ALLOWED)
    assert "NOT_AUTHORIZED" in error


def test_a_delegation_token_stands_for_its_owner_until_it_is_expired(
    shell: Shell, tmp_path: Path
) -> None:
    login = shell.make_user("delegate")
    renewer = shell.make_user("renewer")
    shell("role", "grant", "producer", "delegate")
    made = json.loads(
        shell("delegation-token", "create", "--renewer", "renewer", "--lifetime", "2d", "-o",
              "json", login=login)
    )  # fmt: skip
    by_token = somebody(made["id"], made["hmac"])
    shell("produce", "tokens", "x", "--delegation-token", login=by_token)
    assert made["hmac"] not in shell("delegation-token", "describe", "--owner", "delegate")
    assert made["hmac"] in shell("delegation-token", "describe", "--hmac", login=login)
    file = tmp_path / "hmac"
    file.write_text(made["hmac"])
    renewed = shell("delegation-token", "renew", "--hmac-file", str(file), "--period", "90m",
                    "-o", "json", login=renewer)  # fmt: skip
    assert json.loads(renewed)["expires"] < made["ends"]
    refused = shell("delegation-token", "expire", made["id"], ends_with=ExitCode.NOT_ALLOWED)
    assert "TOKEN_OWNER_MISMATCH [delegation token]: only its owner and its renewers" in refused
    shell("delegation-token", "expire", made["id"], login=login)
    shell("produce", "tokens", "x", "--delegation-token", login=by_token,
          ends_with=ExitCode.NOT_ALLOWED)  # fmt: skip
    error = shell("delegation-token", "renew", made["id"], login=login,
                  ends_with=ExitCode.NOT_FOUND)  # fmt: skip
    assert f"UNKNOWN_TOKEN [{made['id']}]" in error


def test_a_group_is_listed_with_its_type(shell: Shell) -> None:
    shell("topic", "create", "typed")
    shell("consume", "typed", "--group", "typed", "--from-beginning")
    [group] = [g for g in json.loads(shell("group", "list", "-o", "json")) if g["group"] == "typed"]
    assert group["type"] == "classic"
