"""How inference servers are asked: engines by token ids, chat endpoints by messages; no answer without a bound."""
