"""Trajectories kept to be read by people: what was shown, remembered, answered and earned, as text."""
