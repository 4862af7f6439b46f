"""Values of the environment and of secret settings are shown nowhere."""

import io
import logging

from mainstem.pipelines.file.secrets import RedactingFilter, Secrets
from mainstem.telemetry.logs import JsonFormatter


def test_a_value_of_the_environment_is_shown_by_its_name() -> None:
    secrets = Secrets()
    secrets.add("hunter2secret", "${PASSWORD}")
    assert secrets.redact("login with hunter2secret failed") == "login with ${PASSWORD} failed"


def test_a_secret_inside_another_leaves_no_rest() -> None:
    secrets = Secrets()
    secrets.add("abcd")
    secrets.add("abcdefgh")
    assert secrets.redact("abcdefgh") == "***"


def test_short_values_are_left_alone() -> None:
    secrets = Secrets()
    secrets.add("on")
    assert secrets.redact("session") == "session"


def test_nested_values_are_redacted() -> None:
    secrets = Secrets()
    secrets.add("topsecret")
    tree = {"a": ["x topsecret", {"b": "topsecret"}], "c": 3}
    assert secrets.redact_tree(tree) == {"a": ["x ***", {"b": "***"}], "c": 3}


def test_log_lines_facts_and_tracebacks_are_redacted() -> None:
    secrets = Secrets()
    secrets.add("topsecret")
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RedactingFilter(secrets))
    log = logging.getLogger("mainstem-test-of-secrets")
    log.propagate = False
    log.addHandler(handler)
    try:
        int("topsecret")
    except ValueError:
        log.exception("failed with %s", "topsecret", extra={"url": "pg://u:topsecret@h"})
    assert "topsecret" not in out.getvalue()
    assert "invalid literal for int() with base 10: '***'" in out.getvalue()
