"""Clients of inference servers: engines by token ids, chat endpoints by messages."""
