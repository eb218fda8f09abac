"""What ``eval_ruler_hqa.py`` is made of: questions, modes, endpoints, rows on disk, statistics."""
