"""Histories of chat sessions: records, rendering, packing, wording and rankings. Plain Python, no framework."""
