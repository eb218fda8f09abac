"""mem_agent: train, evaluate and serve memory agents with slime, vime, or the small host that ships here."""

__version__ = "0.1.0"
