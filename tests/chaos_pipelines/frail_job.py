"""``mainstem pipeline run`` with points at which its pipelines can be made to stand still.

Everything else is the command as users run it. ``python -m tests.chaos_pipelines.frail_job FILE``.
"""

import sys

from tests.chaos_pipelines import frail_sinks
from tests.chaos_pipelines.frail_source import FrailSource

from mainstem.cli.main import main
from mainstem.pipelines.spark import session

if __name__ == "__main__":
    frail_sinks.install()
    session.MainstemSource = FrailSource  # type: ignore[attr-defined]
    main(["pipeline", "run", "--quiet", *sys.argv[1:]])
