"""MemSifter: the sessions of a long history that a question needs, found in stages."""
