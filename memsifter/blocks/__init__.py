"""A stage's rows in blocks: read, done once, journalled, in one process or on Ray Data."""
