"""Rollout and training on machines that are not here: a simulation of engines, router, trees and trainer.

``cache`` and ``engine`` are one engine, ``prompts`` what prompts share, ``rollout`` many engines behind a router,
``training`` the rest of a step, ``rates`` how fast hardware is, ``predict`` a step on many GPUs. ``traces`` are real
runs, ``record`` makes them, ``check`` compares them with the simulation. The page: ``docs/scaling.md``.
"""
