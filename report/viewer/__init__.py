"""Trajectories as people read them: one HTML file (``mem-agent view``), or the terminal (``mem-agent show``)."""
