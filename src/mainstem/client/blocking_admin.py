"""Administration without asyncio: the same names, and every call waits.

with BlockingAdmin("127.0.0.1:9092") as admin:
    admin.create_topic("orders", partitions=3)
    print(admin.groups.lag("billing"))
"""

from collections.abc import Sequence

from mainstem.client.admin import Admin
from mainstem.client.administration.acls import AclAdmin
from mainstem.client.administration.client_metrics import ClientMetricsAdmin
from mainstem.client.administration.cluster import ClusterAdmin
from mainstem.client.administration.credentials import CredentialAdmin
from mainstem.client.administration.delegation_tokens import DelegationTokenAdmin
from mainstem.client.administration.groups import GroupAdmin
from mainstem.client.administration.quotas import QuotaAdmin
from mainstem.client.administration.transactions import TransactionAdmin
from mainstem.client.blocking_cluster import BlockingCluster, inner
from mainstem.client.concurrency.sync_wrapper import SyncMethods, SyncWrapper, waits


class BlockingGroupAdmin(SyncMethods[GroupAdmin]):
    """See ``GroupAdmin``."""

    list_all = waits(GroupAdmin.list_all)
    describe = waits(GroupAdmin.describe)
    offsets = waits(GroupAdmin.offsets)
    lag = waits(GroupAdmin.lag)
    reset = waits(GroupAdmin.reset)
    settings = waits(GroupAdmin.settings)
    alter_settings = waits(GroupAdmin.alter_settings)
    delete = waits(GroupAdmin.delete)
    delete_offsets = waits(GroupAdmin.delete_offsets)


class BlockingTransactionAdmin(SyncMethods[TransactionAdmin]):
    """See ``TransactionAdmin``."""

    list_all = waits(TransactionAdmin.list_all)
    describe = waits(TransactionAdmin.describe)
    producers = waits(TransactionAdmin.producers)
    abort_hanging = waits(TransactionAdmin.abort_hanging)


class BlockingAclAdmin(SyncMethods[AclAdmin]):
    """See ``AclAdmin``."""

    create = waits(AclAdmin.create)
    find = waits(AclAdmin.find)
    delete = waits(AclAdmin.delete)


class BlockingCredentialAdmin(SyncMethods[CredentialAdmin]):
    """See ``CredentialAdmin``."""

    users = waits(CredentialAdmin.users)
    user = waits(CredentialAdmin.user)
    set_password = waits(CredentialAdmin.set_password)
    delete = waits(CredentialAdmin.delete)


class BlockingQuotaAdmin(SyncMethods[QuotaAdmin]):
    """See ``QuotaAdmin``."""

    find = waits(QuotaAdmin.find)
    alter = waits(QuotaAdmin.alter)


class BlockingDelegationTokenAdmin(SyncMethods[DelegationTokenAdmin]):
    """See ``DelegationTokenAdmin``."""

    create = waits(DelegationTokenAdmin.create)
    find = waits(DelegationTokenAdmin.find)
    renew = waits(DelegationTokenAdmin.renew)
    expire = waits(DelegationTokenAdmin.expire)


class BlockingClientMetricsAdmin(SyncMethods[ClientMetricsAdmin]):
    """See ``ClientMetricsAdmin``."""

    names = waits(ClientMetricsAdmin.names)
    settings = waits(ClientMetricsAdmin.settings)
    alter = waits(ClientMetricsAdmin.alter)
    delete = waits(ClientMetricsAdmin.delete)


class BlockingClusterAdmin(SyncMethods[ClusterAdmin]):
    """See ``ClusterAdmin``."""

    features = waits(ClusterAdmin.features)
    supported = waits(ClusterAdmin.supported)
    set_feature = waits(ClusterAdmin.set_feature)
    quorum = waits(ClusterAdmin.quorum)
    unregister = waits(ClusterAdmin.unregister)


class BlockingAdmin(SyncWrapper[Admin]):
    """Administers a cluster without asyncio; every call blocks.

    A context manager; arguments as for ``Admin``.
    """

    def __init__(
        self, cluster: BlockingCluster | str | Sequence[str], *, timeout_ms: int = 60_000
    ) -> None:
        super().__init__(lambda: Admin(inner(cluster), timeout_ms=timeout_ms))

    create_topics = waits(Admin.create_topics)
    create_topic = waits(Admin.create_topic)
    delete_topics = waits(Admin.delete_topics)
    list_topics = waits(Admin.list_topics)
    describe_topics = waits(Admin.describe_topics)
    create_partitions = waits(Admin.create_partitions)
    topic_configs = waits(Admin.topic_configs)
    node_configs = waits(Admin.node_configs)
    alter_topic_configs = waits(Admin.alter_topic_configs)
    delete_records = waits(Admin.delete_records)
    offsets = waits(Admin.offsets)
    describe_cluster = waits(Admin.describe_cluster)
    log_dirs = waits(Admin.log_dirs)

    @property
    def groups(self) -> BlockingGroupAdmin:
        """Groups and their offsets."""
        thread, admin = self.parts
        return BlockingGroupAdmin(thread, admin.groups)

    @property
    def transactions(self) -> BlockingTransactionAdmin:
        """Open transactions."""
        thread, admin = self.parts
        return BlockingTransactionAdmin(thread, admin.transactions)

    @property
    def acls(self) -> BlockingAclAdmin:
        """Access rules."""
        thread, admin = self.parts
        return BlockingAclAdmin(thread, admin.acls)

    @property
    def credentials(self) -> BlockingCredentialAdmin:
        """Passwords of users."""
        thread, admin = self.parts
        return BlockingCredentialAdmin(thread, admin.credentials)

    @property
    def quotas(self) -> BlockingQuotaAdmin:
        """Limits of users and clients."""
        thread, admin = self.parts
        return BlockingQuotaAdmin(thread, admin.quotas)

    @property
    def delegation_tokens(self) -> BlockingDelegationTokenAdmin:
        """Delegation tokens."""
        thread, admin = self.parts
        return BlockingDelegationTokenAdmin(thread, admin.delegation_tokens)

    @property
    def client_metrics(self) -> BlockingClientMetricsAdmin:
        """Subscriptions to metrics of clients."""
        thread, admin = self.parts
        return BlockingClientMetricsAdmin(thread, admin.client_metrics)

    @property
    def cluster(self) -> BlockingClusterAdmin:
        """Features and the quorum."""
        thread, admin = self.parts
        return BlockingClusterAdmin(thread, admin.cluster)
