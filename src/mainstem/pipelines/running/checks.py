"""Checks whether everything that a file names can be accessed, without changing anything."""

import asyncio

from msgspec import Struct

from mainstem.client.admin import Admin
from mainstem.model.errors import MainstemError
from mainstem.pipelines.connector.shapes import Finding, FindingSeverity, failed, passed
from mainstem.pipelines.file.loader import Pipeline, PipelineFile
from mainstem.pipelines.file.model import BrokerSection
from mainstem.pipelines.running.client_options import cluster_of


class CheckResult(Struct, frozen=True):
    """One finding about the broker or a pipeline."""

    what: str
    finding: Finding

    @property
    def is_error(self) -> bool:
        """Whether it prevents something from running."""
        return self.finding.severity is FindingSeverity.ERROR


def check_broker(broker: BrokerSection) -> list[CheckResult]:
    """Whether the cluster answers and authentication succeeds."""

    async def ask() -> Finding:
        try:
            cluster = cluster_of(broker)
        except MainstemError as error:
            return failed(error.cause, error.remedy)
        try:
            info = await Admin(cluster, timeout_ms=broker.connection_timeout_ms).describe_cluster()
        except MainstemError as error:
            text = f"{error.code.name} [{error.subject}]: {error.cause}"
            return failed(text, error.remedy, retriable=error.retriable)
        finally:
            await cluster.close()
        return passed(f"{len(info.nodes)} node{'s' * (len(info.nodes) != 1)}, cluster {info.id}")

    return [CheckResult("broker", asyncio.run(ask()))]


def check_pipeline(pipeline: Pipeline, file: PipelineFile) -> list[CheckResult]:
    """The findings of the pipeline's connector."""
    redact = file.secrets.redact
    return [
        CheckResult(
            pipeline.id,
            Finding(each.severity, redact(each.message), redact(each.remedy), each.retriable),
        )
        for each in pipeline.connector.check(pipeline.config)
    ]
