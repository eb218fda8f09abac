"""Histories of chat sessions: rows, packing, wording and replies. Plain Python, no framework."""
