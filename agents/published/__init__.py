"""The wording of published repositories: read out of a checkout, converted, and never shipped (``command.py``).

Those texts are their authors'. What is here are places, slots and hashes.
"""
