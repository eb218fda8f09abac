"""RULER's thirteen synthetic long-context tasks, made offline at any length; ``evaluation.make_ruler`` is the command.
"""
