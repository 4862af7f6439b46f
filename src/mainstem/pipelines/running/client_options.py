"""Converts the broker section of a file to a client and to options of Spark."""

import ssl

from mainstem.client.cluster import Cluster
from mainstem.client.connection import ConnectionSettings
from mainstem.client.sasl import SaslSettings
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.pipelines.file.model import BrokerSection, BrokerTlsSection

CLIENT_ID = "mainstem-connect"


def cluster_of(broker: BrokerSection) -> Cluster:
    """A client of the cluster.

    Raises:
        InvalidRequest: a certificate or key cannot be read.
    """
    sasl = None
    if broker.sasl is not None:
        sasl = SaslSettings(
            mechanism=broker.sasl.mechanism,
            username=broker.sasl.username,
            password=broker.sasl.password,
        )
    settings = ConnectionSettings(
        client_id=CLIENT_ID,
        connect_timeout_ms=broker.connection_timeout_ms,
        request_timeout_ms=broker.request_timeout_ms,
        tls=_tls_context(broker.tls) if broker.tls is not None and broker.tls.enabled else None,
        sasl=sasl,
    )
    return Cluster(broker.bootstrap_servers, settings)


def spark_options(broker: BrokerSection) -> dict[str, str]:
    """The options of ``format("mainstem")``, with the names of Kafka's clients."""
    tls = broker.tls if broker.tls is not None and broker.tls.enabled else None
    protocol = f"{'SASL_' if broker.sasl else ''}{'SSL' if tls else 'PLAINTEXT'}"
    options = {
        "kafka.bootstrap.servers": ",".join(broker.bootstrap_servers),
        "kafka.client.id": CLIENT_ID,
    }
    if protocol != "PLAINTEXT":
        options["kafka.security.protocol"] = protocol
    if broker.sasl is not None:
        options |= {
            "kafka.sasl.mechanism": broker.sasl.mechanism,
            "kafka.sasl.username": broker.sasl.username,
            "kafka.sasl.password": broker.sasl.password,
        }
    if tls is not None:
        paths = {
            "kafka.ssl.ca.location": tls.ca_path,
            "kafka.ssl.certificate.location": tls.cert_path,
            "kafka.ssl.key.location": tls.key_path,
        }
        options |= {name: path for name, path in paths.items() if path is not None}
    return options


def _tls_context(tls: BrokerTlsSection) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_path)
        if tls.cert_path is not None:
            context.load_cert_chain(tls.cert_path, tls.key_path)
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"certificates cannot be loaded: {error}",
            subject="broker.tls",
            remedy="check ca_path, cert_path and key_path",
        ) from None
    return context
