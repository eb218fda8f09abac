"""One OpenMP thread for every test process: several spinning ones on a small machine cost more than they give.

No deadline for property tests either: how long an example takes on a busy machine says nothing about the code.
"""

import os

from hypothesis import settings

os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0", TORCHDYNAMO_DISABLE="1")

# Run by test_hosts.py in a process inside the host; elsewhere its imports are not there.
collect_ignore = [] if "INSIDE_HOST" in os.environ else ["inside_host"]

settings.register_profile("pack", deadline=None)
settings.load_profile("pack")
