"""Builds the documents as a site: ``python docs/build_site.py OUTPUT``; a dead link ends it.

The pages are the Markdown files where they lie, README.md first, each at its own place, so a link is the same in the
repository and on the site. mkdocs builds a copy of them, with the images and the few data files that they link to; a
link to any other file is refused as dead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "README_zh.md", "CONTRIBUTING.md", "CHANGELOG.md", "agents/README.md", "pocket/README.md",
         "recipes/*.md", "recipes/*.yaml", "docs/**/*.md", "docs/images/*")


def stage(folder: Path) -> None:
    """A copy of all pages and images below ``folder``."""
    for pattern in PAGES:
        for file in sorted(ROOT.glob(pattern)):
            target = folder / file.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)


def build(output: Path) -> int:
    """mkdocs' exit code."""
    with tempfile.TemporaryDirectory() as work:
        stage(Path(work) / "pages")
        shutil.copy(ROOT / "docs" / "mkdocs.yml", work)
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(output.absolute())]
        return subprocess.run(command, cwd=work, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}).returncode


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/build_site.py OUTPUT")
    sys.exit(build(Path(sys.argv[1])))
