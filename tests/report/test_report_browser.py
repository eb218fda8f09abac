"""The page in a real browser: nothing loaded, nothing logged, everything drawn, nothing wider than the window; its
table of questions used, in light and in dark."""

import io
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image

from mem_agent.report.page import make_report
from mem_agent.report.viewer.page import write_viewer
from mem_agent.tests.helpers.fake_results import write_run
from mem_agent.tests.helpers.fake_run import write_training_run
from mem_agent.tests.helpers.sifter_files import small_results
from mem_agent.tests.helpers.traces import group_of, write


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """A run with its evaluations before and after, whose trajectories have a page, beside results of a long and
    hostile name and the sifter's stages."""
    root = tmp_path_factory.mktemp("synthetic")
    run = write_training_run(root / "mine", rollouts=60)
    for skill, (name, model) in enumerate({"before": "/models/start", "after-iter_0000059": str(run / "hf")}.items()):
        folder = write_run(run / "eval" / name, lengths=("50", "200"), questions=30, skill=0.3 + 0.4 * skill,
                           samples=2, seed=skill, model=model)
        write_viewer(write(folder, "50", group_of(None, "7", "50")), folder / "view.html")
    hostile = write_run(root / f"<b>&\"{'long-name-' * 20}", lengths=("50",), questions=6, data="other")
    sifter = small_results(root / "results")
    (sifter / "ranker").rename(sifter / "<b>ranker & a name that is much longer than it has to be")
    make_report([run, hostile, sifter], run / "report")
    return run / "report" / "index.html"


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_page_in_a_browser(browser, report, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    logged, requested = [], []
    page.on("console", lambda message: logged.append(message.text))
    page.on("pageerror", lambda error: logged.append(str(error)))
    page.on("request", lambda asked: requested.append(asked.url))
    page.goto(report.as_uri())
    assert logged == [] and [url for url in requested if not url.startswith("data:")] == [report.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0 && i.alt)")
    assert page.locator("img:visible").count() == (3 if width > 720 else 7)
    assert page.locator("h2").count() == 9 and page.locator("b").count() == 0
    assert page.get_by_text("who founded the <b>club</b> & when?").count() > 0
    assert "from before to after-iter_0000059: better" in page.locator(".headline").first.inner_text()
    assert page.locator("#questions thead").is_hidden() == (width < 400), "rows are cards on a telephone"
    shades = [shade(page.screenshot()), shade(page.locator("img:visible").first.screenshot())]
    assert all(value < 60 if scheme == "dark" else value > 200 for value in shades), shades
    page.close()


def shade(png: bytes) -> int:
    """The most frequent grey: that of the paper."""
    histogram = Image.open(io.BytesIO(png)).convert("L").histogram()
    return histogram.index(max(histogram))


def test_questions_are_filtered_sorted_and_linked_as_a_reader_does(browser, report):
    page = browser.new_page()
    page.goto(report.as_uri())
    section = page.locator("#questions")
    count, rows = section.get_by_role("status"), section.locator("tbody tr")
    assert count.inner_text() == "66 of 66 questions" and rows.count() == 20
    section.get_by_role("button", name="Show more").click()
    assert rows.count() == 40
    section.get_by_label("File").select_option("200")
    section.get_by_label("Which questions").select_option("unlike")
    assert 0 < int(count.inner_text().split()[0]) < 30
    section.get_by_label("Which questions").select_option("all")
    section.get_by_label("Order").select_option("lowest")
    assert count.inner_text() == "30 of 66 questions"
    assert set(rows.first.locator(".score").all_inner_texts()) == {"0%"}
    section.get_by_label("File").select_option("")
    section.get_by_label("Search questions and answers").fill("question 7: club")
    link = rows.filter(has=page.get_by_text("50 / 7", exact=True)).get_by_role("link").last
    at = parse_qs(urlsplit(link.get_attribute("href")).fragment)
    assert at == {"length": ["50"], "question": ["7"], "sample": ["1"]}
    link.click()
    assert page.title().endswith(": trajectories") and "after-iter_0000059/view.html" in page.url
    page.close()
