"""What clusters do to a run of days, done to a small one on purpose: ``python -m mem_agent.tests.faults``."""
