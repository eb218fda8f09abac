"""One OpenMP thread for every test process: several spinning ones on a small machine cost more than they give."""

import os

os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0", TORCHDYNAMO_DISABLE="1")

# Run by test_hosts.py in a process inside the host; elsewhere its imports are not there.
collect_ignore = [] if "INSIDE_HOST" in os.environ else ["inside_host"]
