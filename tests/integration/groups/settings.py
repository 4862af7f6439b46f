"""What holds for a group, set as any Kafka tool sets it."""

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from mainstem.testing.local_node import LocalNode


def configure(node: LocalNode, group: str, name: str, value: str) -> None:
    """Set one thing for a group."""
    admin = AdminClient({"bootstrap.servers": node.kafka})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    [done] = admin.incremental_alter_configs([resource]).values()
    done.result()
