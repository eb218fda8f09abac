"""The three commands: embed, rank, answer."""
