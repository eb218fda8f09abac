"""The page in a real browser: nothing loaded, nothing logged, everything drawn, nothing wider than the window."""

import shutil
from pathlib import Path

import pytest

from mem_agent.report.__main__ import make_report
from mem_agent.sifter.table.score_lines import FILE, write_scores
from mem_agent.sifter.table.sifter_table import sifter_scores
from mem_agent.tests.helpers.fake_results import write_run
from mem_agent.tests.helpers.sifter_files import small_results

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium; on Debian: apt-get install chromium")


@pytest.fixture(scope="module")
def browser():
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with driver.sync_playwright() as playwright:
        # A container's root has no sandbox to give.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory) -> Path:
    """Synthetic results of three runs at eight lengths."""
    root = tmp_path_factory.mktemp("synthetic")
    folders = [
        write_run(root / "before", skill=0.7, decay=0.03, failures=0.02, seed=1),
        write_run(root / "after-iter_0000399", skill=0.8, decay=0.008, failures=0.01, seed=2),
        write_run(root / "direct", skill=0.72, decay=0.09, mode="direct", seed=3),
    ]
    return make_report(folders, root / "report")


@pytest.fixture(scope="module")
def many_runs(tmp_path_factory) -> Path:
    """Twenty runs with long and hostile names, one of them of other data."""
    root = tmp_path_factory.mktemp("synthetic")
    names = [f"{i:02d} <b>&\"{'long-name-' * (20 if i % 5 == 0 else 0)}" for i in range(20)]
    folders = [
        write_run(root / name, lengths=("50", "200"), questions=6, data="other" if i == 3 else "same", seed=i)
        for i, name in enumerate(names)
    ]
    return make_report(folders, root / "report", title="<script>document.title = 'run'</script>")


@pytest.fixture(scope="module")
def one_length(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("synthetic")
    return make_report([write_run(root / "only", lengths=("50",), questions=5)], root / "report")


@pytest.fixture(scope="module")
def sifter(tmp_path_factory) -> Path:
    """The sifter's stages alone, with a hostile name."""
    root = small_results(tmp_path_factory.mktemp("synthetic") / "results")
    (root / "ranker").rename(root / "<b>ranker & a name that is much longer than it has to be")
    write_scores(root / FILE, sifter_scores(root))
    return make_report([root], root.parent / "report")


SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("report", ["three_runs", "many_runs", "one_length", "sifter"])
def test_page_in_a_browser(browser, request, report, size):
    page_file = request.getfixturevalue(report)
    width, height = SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height})
    logged, requested = [], []
    page.on("console", lambda message: logged.append(message.text))
    page.on("pageerror", lambda error: logged.append(str(error)))
    page.on("request", lambda asked: requested.append(asked.url))
    page.goto(page_file.as_uri())
    page.screenshot(path=page_file.with_name(f"screenshot-{size}.png"), full_page=True)

    assert logged == []
    assert [url for url in requested if not url.startswith("data:")] == [page_file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.scripts.length") == 0
    boxes = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, details[open] table, section > .scroll table, img')]"
        ".map(e => [e.tagName, e.getBoundingClientRect().width, e.getBoundingClientRect().height])"
    )
    assert all(wide > 0 and high > 0 for _, wide, high in boxes)
    tags = [tag for tag, _, _ in boxes]
    images, sections = (1, 2) if report == "sifter" else (6, 7)
    assert tags.count("IMG") == images and tags.count("H2") == sections and tags.count("TABLE") >= 5
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0 && i.alt)")
    assert page_file.with_name(f"screenshot-{size}.png").stat().st_size > 20_000
    page.close()


def test_results_are_text_and_never_markup(browser, many_runs):
    page = browser.new_page()
    page.goto(many_runs.as_uri())
    assert page.title() == "<script>document.title = 'run'</script>"
    assert page.locator("b").count() == 0
    assert page.get_by_text("who founded the <b>club</b> & when?").count() > 0
    page.close()


def test_page_prints(browser, three_runs):
    page = browser.new_page()
    page.goto(three_runs.as_uri())
    assert len(page.pdf(format="A4")) > 50_000
    page.close()
