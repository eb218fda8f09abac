"""Evaluation results as a page, plots and tables, beside published numbers: ``python -m mem_agent.report RESULTS``."""
