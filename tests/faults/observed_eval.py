"""``mem-agent eval``, which announces each answer that it gets: ``python -m mem_agent.tests.faults.observed_eval``."""

from __future__ import annotations

import sys

from mem_agent import eval_ruler_hqa
from mem_agent.client.engine_api import Endpoint
from mem_agent.tests.faults.moments import Announcer, Moment
from mem_agent.tests.faults.observed_train import before

if __name__ == "__main__":
    announcer = Announcer()
    before(Endpoint, "parse_response", lambda *_: announcer.announce(Moment.ANSWER))
    sys.exit(eval_ruler_hqa.main())
