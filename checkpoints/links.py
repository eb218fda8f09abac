"""Links in a model's folder, which others may have made: where they lead decides whether a copy or an upload follows.

Invariant: nothing of this user's comes into a folder, or to the hub, because a stranger's model has a link to it.
"""

from __future__ import annotations

from pathlib import Path

REMEDY = "put the file itself in its place"


def leads_out(file: Path, model: Path) -> bool:
    """Whether ``file`` of the folder ``model`` is one elsewhere; in the hub's cache a model's files are in ``blobs``::

    models--a--b/snapshots/0f/tokenizer.json -> ../../blobs/6b       False
    model/tokenizer.json -> /home/me/.netrc                          True
    """
    home = model.resolve()
    places = [home, *([home.parents[1] / "blobs"] if home.parent.name == "snapshots" else [])]
    return not any(file.resolve().is_relative_to(place) for place in places)
