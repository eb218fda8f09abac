"""The contract with a host: its arguments, its Sample, what a rollout reads with and what it tells of itself."""
