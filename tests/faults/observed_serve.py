"""``mem-agent serve-engines`` with engines that answer oddly on order."""

from __future__ import annotations

import sys

from mem_agent.serving import engine, serve_engines
from mem_agent.tests.faults.observed_train import odd_on_order

if __name__ == "__main__":
    odd_on_order(engine)
    sys.exit(serve_engines.main())
