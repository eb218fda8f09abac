"""RULER's thirteen synthetic long-context tasks: made offline at any length, scored as RULER scores them."""
