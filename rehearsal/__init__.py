"""A cluster job of slime or vime, run on this machine: the host's own train.py on a CPU, with the user's settings."""
