"""What clusters do to a run of days, done to a small one on purpose."""
