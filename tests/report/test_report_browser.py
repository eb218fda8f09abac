"""The page in a real browser: nothing loaded, nothing logged, everything drawn, nothing wider than the window; its
table of questions used, and its two themes."""

import io
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image

from mem_agent.memsifter.table import FILE, sifter_scores, write_scores
from mem_agent.report.__main__ import make_report
from mem_agent.report.viewer.page import write_viewer
from mem_agent.tests.helpers.fake_results import write_run
from mem_agent.tests.helpers.fake_run import write_training_run
from mem_agent.tests.helpers.sifter_files import small_results
from mem_agent.tests.helpers.traces import group_of, write


@pytest.fixture(scope="module")
def many_runs(tmp_path_factory) -> Path:
    """Eight runs with long and hostile names, one of them of other data."""
    root = tmp_path_factory.mktemp("synthetic")
    names = [f"{i:02d} <b>&\"{'long-name-' * (20 if i % 5 == 0 else 0)}" for i in range(8)]
    folders = [
        write_run(root / name, lengths=("50", "200"), questions=6, data="other" if i == 3 else "same", seed=i)
        for i, name in enumerate(names)
    ]
    make_report(folders, root / "report")
    return root / "report" / "index.html"


@pytest.fixture(scope="module")
def sifter(tmp_path_factory) -> Path:
    """The sifter's stages alone, with a hostile name."""
    root = small_results(tmp_path_factory.mktemp("synthetic") / "results")
    (root / "ranker").rename(root / "<b>ranker & a name that is much longer than it has to be")
    write_scores(root / FILE, sifter_scores(root))
    make_report([root], root.parent / "report")
    return root.parent / "report" / "index.html"


@pytest.fixture(scope="module")
def training(tmp_path_factory) -> Path:
    """A run with its evaluations before and after, whose trajectories have a page."""
    run = write_training_run(tmp_path_factory.mktemp("synthetic") / "mine", rollouts=60)
    models = {"before": "/models/start", "after-iter_0000059": str(run / "hf" / "iter_0000059")}
    results = [
        write_run(run / "eval" / name, lengths=("50", "200"), questions=30, skill=0.3 + 0.4 * seed, samples=2,
                  seed=seed, model=model)
        for seed, (name, model) in enumerate(models.items())
    ]
    for folder in results:
        write_viewer(write(folder, "50", group_of(None, "7", "50")), folder / "view.html")
    make_report([run], run / "report")
    return run / "report" / "index.html"


@pytest.mark.parametrize("report,width,height", [
    ("many_runs", 1280, 900), ("many_runs", 390, 844), ("sifter", 390, 844), ("training", 1280, 900),
])
def test_page_in_a_browser(browser, request, report, width, height):
    page_file = request.getfixturevalue(report)
    page = browser.new_page(viewport={"width": width, "height": height})
    logged, requested = [], []
    page.on("console", lambda message: logged.append(message.text))
    page.on("pageerror", lambda error: logged.append(str(error)))
    page.on("request", lambda asked: requested.append(asked.url))
    page.goto(page_file.as_uri())
    page.screenshot(path=page_file.with_name(f"screenshot-{width}.png"), full_page=True, timeout=180_000)

    assert logged == []
    assert [url for url in requested if not url.startswith("data:")] == [page_file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.scripts].every(s => !s.src)")
    boxes = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, details[open] table, section > .scroll table, img')]"
        ".map(e => [e.tagName, e.getBoundingClientRect().width, e.getBoundingClientRect().height])"
    )
    assert all(wide > 0 and high > 0 for _, wide, high in boxes)
    tags = [tag for tag, _, _ in boxes]
    images, sections = {"sifter": (1, 2), "training": (9, 8)}.get(report, (6, 7))
    assert tags.count("IMG") == images and tags.count("H2") == sections and tags.count("TABLE") >= 5
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0 && i.alt)")
    assert page_file.with_name(f"screenshot-{width}.png").stat().st_size > 20_000
    page.close()


def test_results_are_text_and_never_markup(browser, many_runs):
    page = browser.new_page()
    page.goto(many_runs.as_uri())
    assert page.title().startswith("Evaluation of 00 <b>&")
    assert page.locator("b").count() == 0
    assert page.get_by_text("who founded the <b>club</b> & when?").count() > 0
    page.close()


def test_questions_are_filtered_as_a_reader_does(browser, training):
    page = browser.new_page()
    page.goto(training.as_uri())
    section = page.locator("#questions")
    count = section.get_by_role("status")
    assert count.inner_text() == "60 of 60 questions" and section.locator("tbody tr").count() == 20
    section.get_by_role("button", name="Show more").click()
    assert section.locator("tbody tr").count() == 40
    section.get_by_label("File").select_option("200")
    assert count.inner_text() == "30 of 60 questions"
    section.get_by_label("Which questions").select_option("better")
    better = int(count.inner_text().split()[0])
    section.get_by_label("Which questions").select_option("worse")
    worse = int(count.inner_text().split()[0])
    assert better > worse > 0 and better + worse <= 30
    section.get_by_label("Which questions").select_option("all")
    section.get_by_label("Search questions and answers").fill("question 17:")
    assert count.inner_text() == "1 of 60 questions"
    assert section.locator("tbody .where").inner_text() == "200 / 17"
    section.get_by_label("Search questions and answers").fill("no such words")
    assert count.inner_text() == "0 of 60 questions" and not section.get_by_role("button").is_visible()
    page.close()


def test_the_lowest_scores_and_the_largest_changes_come_first(browser, training):
    page = browser.new_page()
    page.goto(training.as_uri())
    section = page.locator("#questions")
    section.get_by_label("Order").select_option("lowest")
    assert set(section.locator("tbody tr").first.locator(".score").all_inner_texts()) == {"0%"}
    section.get_by_label("Order").select_option("change")
    assert section.locator("tbody tr").first.locator(".score").all_inner_texts() in (
        ["0%", "0%", "100%", "100%"], ["100%", "100%", "0%", "0%"],
    )
    page.close()


def test_a_row_links_into_the_page_of_its_trajectory(browser, training):
    page = browser.new_page()
    page.goto(training.as_uri())
    section = page.locator("#questions")
    section.get_by_label("Search questions and answers").fill("question 7: club")
    row = {file: section.locator("tbody tr").filter(has=page.get_by_text(f"{file} / 7", exact=True))
           for file in ("50", "200")}
    assert row["200"].count() == 1 and row["200"].get_by_role("link").count() == 0, "nothing was kept of 200"
    link = row["50"].get_by_role("link").last
    at = parse_qs(urlsplit(link.get_attribute("href")).fragment)
    assert at == {"length": ["50"], "question": ["7"], "sample": ["1"]}
    link.click()
    assert page.title().endswith(": trajectories") and "after-iter_0000059/view.html" in page.url
    page.close()


def test_page_and_plots_are_light_or_dark_together(browser, training):
    page = browser.new_page(color_scheme="dark", viewport={"width": 1280, "height": 900})
    page.goto(training.as_uri())
    assert page.locator("#theme").inner_text() == "Light"
    for dark in (True, False, True):
        shades = [shade(page.screenshot()), shade(page.locator("img").first.screenshot())]
        assert all(value < 60 if dark else value > 200 for value in shades), (dark, shades)
        page.locator("#theme").click()
    page.close()


def shade(png: bytes) -> int:
    """The most frequent grey: that of the paper."""
    histogram = Image.open(io.BytesIO(png)).convert("L").histogram()
    return histogram.index(max(histogram))


def test_a_run_shows_curves_headline_and_names(browser, training):
    page = browser.new_page(viewport={"width": 400, "height": 844})
    page.goto(training.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert "after-iter_0000059 is better than before" in page.locator(".headline").inner_text()
    shown = page.locator("#standing table").first.inner_text()
    assert "start" in shown and "mine" in shown and "iter_0000059" in shown
    assert page.locator("#training img").count() == 3
    assert page.locator("#questions thead").is_hidden(), "rows are cards on a telephone"
    narrow = "i => i.currentSrc !== i.src && i.width <= 400"
    assert page.evaluate(f"[...document.querySelectorAll('img')].every({narrow})"), "plots have a narrow form"
    page.close()


def test_no_table_of_a_run_is_cut_on_a_laptop(browser, training):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(training.as_uri())
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)"
    assert page.locator("#standing .scroll").count() and page.evaluate(cut) == []
    page.close()
