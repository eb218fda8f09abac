"""What any command needs, of the standard library alone: errors, files, processes, concurrency."""
