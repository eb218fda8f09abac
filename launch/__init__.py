"""Training in slime and vime: what ``HOST=slime|vime run-train.sh`` does before and after the host's ``train.py``.

In order: settle everything (``plan``): find the host (``find_host``), describe the model as it wants it
(``model_args``), divide the GPUs (``layout``), word the command (``arguments``); check it all (``preflight``); start
or join Ray and run the job (``ray_job``). ``launch.py`` is the command. Nothing here is imported by the hooks.
"""
