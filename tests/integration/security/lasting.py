"""A secured node that comes back under the same addresses, with its users, rules and tokens."""

from pathlib import Path

from tests.integration.security.kit import SecureNode


def flags(settings: dict[str, object]) -> list[str]:
    """Settings as a command line has them."""
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


class LastingNode(SecureNode):
    """Chooses its ports the first time and keeps them."""

    def __init__(self, folder: Path, settings: dict[str, object] | None = None) -> None:
        super().__init__(folder, *flags(settings or {}))

    def start(self, *, timeout_s: float = 30.0) -> None:
        """Start, and remember where."""
        super().start(timeout_s=timeout_s)
        listeners = self.announced["kafka_listeners"]
        assert isinstance(listeners, list)
        self.arguments += ("--set", f"kafka.listeners={','.join(listeners)}")
