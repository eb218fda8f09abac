"""Rounds of training: rows from the last ranking, and the commands of each."""
