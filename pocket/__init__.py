"""The pocket profile: a task, a tokenizer and a model small enough to show reinforcement learning on two CPU cores."""
