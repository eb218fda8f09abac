"""The functions of the page of trajectories, for tests that ask for one of them in a browser."""

from pathlib import Path

from mem_agent.report.viewer import facts

_WEB = Path(facts.__file__).parent / "web"


def scripts(*names: str) -> str:
    """The scripts of these names, one after another as the page has them."""
    return "\n".join((_WEB / f"{name}.js").read_text(encoding="utf-8") for name in names)
