"""Python imports this first in every process whose PYTHONPATH begins with this folder: those of a rehearsed job.

So the driver, Ray's workers and what they spawn find CUDA answered for before they import a framework, and no file of
the host has to know of it.
"""

from mem_agent.rehearsal import cpu_job

cpu_job.prepare()
