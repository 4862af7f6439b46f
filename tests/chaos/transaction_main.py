"""The process of one transactional client; see ``transaction_process`` for how it ends."""

import argparse
import sys
from pathlib import Path

from tests.chaos.transaction_client import process, produce, read
from tests.chaos.transaction_journal import Journal
from tests.chaos.transaction_modern_client import process_modern, produce_modern
from tests.chaos.transaction_process import FENCED_STATUS, Ending, Gone

ROLES = {
    "producer": produce,
    "modern-producer": produce_modern,
    "chain": process,
    "modern-chain": process_modern,
    "member": process,
    "reader": read,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--incarnation", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output", default="")
    parser.add_argument("--group", default="")
    parser.add_argument("--pause-s", type=float, default=0.0)
    options = parser.parse_args()
    ending = Ending()
    with Journal(options.journal) as journal:
        try:
            ROLES[options.role](options, journal, ending)
        except Gone as error:
            journal.note("gone", str(error))
            return FENCED_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main())
