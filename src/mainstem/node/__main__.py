"""``python -m mainstem.node``: the same as ``mainstemd``."""

import sys

from mainstem.node.lifecycle import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
