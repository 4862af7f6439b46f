"""The HTTP port of a connect process."""

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from mainstem.model.errors import MainstemError
from mainstem.pipelines.running.probe_server import STALE_S, ProbeServer
from mainstem.pipelines.running.restart_policy import PipelineState
from mainstem.pipelines.running.status import PipelineStatus, Status


class Board:
    """What the server is told."""

    def __init__(self) -> None:
        self.state = PipelineState.RUNNING
        self.silent_s = 0.0

    def status(self) -> Status:
        pipeline = PipelineStatus(id="sources.a", connector="datagen", state=self.state)
        moment = time.time() - self.silent_s
        return Status(pid=1, file="f", started_at=0, updated_at=moment, pipelines=(pipeline,))


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def server(board: Board) -> Iterator[ProbeServer]:
    with ProbeServer(("127.0.0.1", 0), board.status) as server:
        yield server


def get(server: ProbeServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{server.address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_all_is_well_while_pipelines_run(server: ProbeServer) -> None:
    assert [get(server, path)[0] for path in ("/health", "/ready", "/live", "/status")] == [200] * 4
    code, text = get(server, "/metrics")
    assert code == 200
    assert "mainstem_pipeline_records_total" in text


def test_a_failed_pipeline_is_told(server: ProbeServer, board: Board) -> None:
    board.state = PipelineState.FAILED
    code, text = get(server, "/health")
    assert code == 503
    assert json.loads(text)["components"][0]["name"] == "sources.a"
    assert get(server, "/live")[0] == 503


def test_a_process_that_makes_no_rounds_is_not_live(server: ProbeServer, board: Board) -> None:
    board.silent_s = STALE_S + 1
    assert get(server, "/live")[0] == 503


def test_an_unknown_path_lists_the_known_ones(server: ProbeServer) -> None:
    code, text = get(server, "/nowhere")
    assert code == 404
    assert "/health" in json.loads(text)["known"]


def test_a_port_that_is_taken_is_named(board: Board) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(MainstemError, match=r"settings\.health\.port"):
            ProbeServer(taken.getsockname(), board.status)
