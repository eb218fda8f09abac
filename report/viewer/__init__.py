"""Trajectories as people read them: one HTML file (``mem-agent view``), or the terminal (``mem-agent show``)."""

from .page import write_viewer

__all__ = ["write_viewer"]
