"""The page of trajectories in a real browser, used as a person would: nothing loaded or logged, texts are text."""

import pytest

from mem_agent.report.viewer.page import write_viewer
from mem_agent.tests.helpers.traces import HOSTILE, write_small_results, write_small_run


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    root = tmp_path_factory.mktemp("viewer")
    folders = {"run": write_small_run(root / "run"), "results": write_small_results(root / "results")}
    for folder in folders.values():
        write_viewer(folder, folder / "view.html")
    return {name: folder / "view.html" for name, folder in folders.items()}


@pytest.fixture
def opened(browser, pages):
    """``opened(name, address)`` gives a page; at the end nothing was logged by any, and nothing was asked for."""
    made, logged, requested = [], [], []

    def open_page(name, address="", size=(1280, 900), scheme="light"):
        page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        page.on("console", lambda message: logged.append(message.text))
        page.on("pageerror", lambda error: logged.append(str(error)))
        page.on("request", lambda asked: requested.append(asked.url))
        page.goto(pages[name].as_uri() + address)
        page.wait_for_selector("#main h2")
        made.append(page)
        return page

    yield open_page
    for page in made:
        page.close()
    assert logged == []
    assert {url.partition("#")[0] for url in requested} <= {"data:,", *(file.as_uri() for file in pages.values())}


def drawn(page, address):
    """Waits until what the address says is drawn."""
    page.wait_for_selector(f"body[data-drawn*='{address}']")


def texts(page, selector):
    return page.locator(selector).all_text_contents()  # of those too that are not drawn until they are seen


def test_a_person_follows_a_fact_through_a_trajectory(opened):
    page = opened("run")
    assert texts(page, "#place option") == ["rollout 0", "rollout 12"] and page.locator("#place").input_value() == "1"
    page.locator("a.question", has_text="41").click()
    drawn(page, "question=41")
    assert page.locator(".strip tbody tr").count() == 1  # the other accepted answer stands nowhere
    assert texts(page, ".strip tbody td") == ["", "+", "●", "×", ""]
    assert "0.00, answer 0, length -0.125" in page.text_content("dl")
    assert "−0.50" in page.inner_text("summary >> nth=0")
    assert texts(page, "#turn1 .block >> nth=0 >> mark.gold") == ["Silver"]
    assert texts(page, "#turn1 ins") == ["silver"] == texts(page, "#turn3 del.gold")
    assert "earned recall 0.5" in page.inner_text("#turn1 h3") and "ended by length" in page.inner_text("#turn4 h3")


def test_siblings_are_a_click_a_key_and_a_table_away(opened):
    page = opened("run", "#rollout=12&question=41")
    page.get_by_role("link", name="sample 1: 1.00").click()
    page.wait_for_selector("summary >> text=silver")
    assert "sample=1" in page.url and texts(page, ".strip tbody td") == ["", "+", "●", "●", "✓"]
    shades = page.locator("#turn4 .token").evaluate_all("all => all.map(e => e.className.match(/shade./)[0])")
    assert shades[0] == "shade0" and shades == sorted(shades)
    assert page.locator("#turn4 .token").first.get_attribute("title") == "log-prob -0.01, 99%"
    assert "".join(texts(page, "#turn4 .token.gold")) == "silver"
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("summary >> text=EngineError")
    assert "EngineError: no answer <60 s>" in page.text_content("dl")
    page.keyboard.press("s")
    page.wait_for_selector(".siblings")
    last = page.locator(".siblings tbody tr").nth(3).locator("td")
    assert "× silver" in last.nth(0).inner_text() and "● silver" in last.nth(1).inner_text()


def test_an_address_opens_what_it_names_and_the_page_writes_addresses(opened):
    page = opened("results", "#length=50&question=8&sample=1&turn=2")
    page.wait_for_selector("#turn1:focus")
    assert page.locator(".tabs [aria-current]").inner_text() == "✓ sample 1: 1.00"
    page.keyboard.press("j")
    drawn(page, "#length=50&question=8&sample=1&turn=3")
    page.select_option("#place", label="length 200")
    drawn(page, "#length=200&question=7&sample=0")
    absent = opened("results", "#length=50&question=99")
    assert "Not in this page: length 50, question 99" in absent.inner_text("[role=alert]")


def test_the_list_is_filtered_and_all_texts_are_searched(opened):
    page = opened("run", "#rollout=12&question=41")
    page.keyboard.press("/")
    page.keyboard.type("hundredth")
    assert texts(page, "a.question .id") == ["100"]
    page.fill("#query", "Bo sleeps")
    page.keyboard.press("Enter")
    page.wait_for_selector("#count >> text=“bo sleeps”")
    assert page.locator("a.hit-line").count() == 4  # the document of each question, once for its siblings
    page.locator("a.hit-line", has_text="question 100").click()
    page.wait_for_selector("#turn2:focus")
    assert texts(page, "#turn2 .hit") == ["Bo sleeps"]


@pytest.mark.parametrize("address", ["#rollout=12&question=666", "#rollout=12&question=666&view=siblings"])
def test_what_a_model_wrote_is_text_and_never_markup(opened, address):
    page = opened("run", address, (400, 850), "dark")
    assert page.locator("img, b, iframe, main script").count() == 0 and page.title() == "run: trajectories"
    assert page.evaluate("document.scripts.length") == page.locator("script[type='text/plain']").count() + 1
    assert page.locator(".head h2").text_content() == HOSTILE
    assert page.evaluate("[...document.links].every(a => a.getAttribute('href').startsWith('#'))")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.get_by_role("button", name="Questions").click()
    assert page.locator("a.question").first.is_visible()
