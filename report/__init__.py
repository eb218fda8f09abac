"""Evaluation results as a page, plots and tables, beside published numbers: ``mem-agent report RESULTS``."""
