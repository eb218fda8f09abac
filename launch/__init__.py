"""Training in slime and vime: what ``HOST=slime|vime run-train.sh`` does before and after the host's ``train.py``.

``launch.py`` reads as the order of things: find the host (``checkout``), describe the model as it wants it
(``model_args``), divide the GPUs (``layout``), word the command (``arguments``), check everything (``preflight``),
start or join Ray (``ray_job``), run the job. Nothing here is imported by the hooks.
"""
