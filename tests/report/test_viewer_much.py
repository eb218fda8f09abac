"""What a page of trajectories does with much: many turns, siblings, answers and words, or a trajectory that is broken.

Work is counted, and never timed.
"""

from base64 import b64decode
from zlib import compress, decompress

import orjson
import pytest

from mem_agent.benchmarks.made_trajectories import Shape, trajectories, write_traces
from mem_agent.report.viewer import write_viewer
from mem_agent.report.viewer.page import _PART, _render, is_viewer_of
from mem_agent.tests.helpers.traces import group_of, write
from mem_agent.tests.helpers.viewer_scripts import scripts
from mem_agent.traces.read_traces import fingerprint
from mem_agent.traces.trace import Trace, TraceDocument, TraceTurn


class Pages:
    """Pages of trajectories in a browser, and what they logged."""

    def __init__(self, browser, folder):
        self.browser, self.folder, self.made, self.logged = browser, folder, [], []

    def __call__(self, records, address=""):
        folder = write(self.folder / "run", "rollout_000012", records)
        return self.file(write_viewer(folder, folder / "view.html"), address)

    def file(self, file, address="", before=""):
        page = self.browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("console", lambda message: self.logged.append(message.text))
        page.on("pageerror", lambda error: self.logged.append(str(error)))
        page.add_init_script(before)
        page.goto(file.as_uri() + address)
        page.wait_for_selector("#main :is(h2, [role=alert])")
        self.made.append(page)
        return page


@pytest.fixture
def opened(browser, tmp_path):
    """``opened(records, address)`` gives a page of them; at the end nothing was logged by any."""
    pages = Pages(browser, tmp_path)
    yield pages
    for page in pages.made:
        page.close()
    assert pages.logged == []


def trace(*turns, number=0, **more):
    return Trace(**{"id": f"{number}", "rollout": 12, "group": "g", "sample": number, "question_id": "q",
                    "question": "Which?", "turns": turns} | more)


def memory(text="", **more):
    return TraceTurn(kind="memory", memory=text, reply=text, **more)


def words(start, count):
    return " ".join(f"{start}{number}" for number in range(count))


# --- addresses ------------------------------------------------------------------------------------------------------


def test_each_question_has_an_address_that_leads_to_it(opened):
    """Rows with an index alone: their ids and the running numbers of their groups are both small whole numbers."""
    page = opened([trace(number=at, group=f"{at}", question_id=name, question=f"Is it {at}?", sample=0)
                   for at, name in enumerate(["2", "0", "1", "", "3", "0"])])
    asked = [f"Is it {at}?" for at in range(6)]
    assert page.locator("a.question .asked").all_text_contents() == asked
    seen = []
    for link, question in zip(page.locator("a.question").all(), asked, strict=True):
        link.click()
        page.wait_for_selector(f"#main h2 >> text={question}")
        seen.append(page.evaluate("location.hash"))
    assert len({*seen}) == 6 and seen[1] == "#rollout=12&question=0&group=1&sample=0"
    for step in reversed(range(5)):
        page.keyboard.press("p")
        page.wait_for_selector(f"#main h2 >> text=Is it {step}?")


def test_siblings_of_one_sample_number_are_told_apart(opened):
    page = opened([trace(memory(f"note {at}"), number=at, sample=at // 2) for at in range(3)])
    hrefs = page.locator(".tabs a").evaluate_all("all => all.map(a => a.getAttribute('href').split('sample')[1])")
    assert hrefs == ["=0&sibling=1", "=0&sibling=2", "=1"]
    for at, link in enumerate(page.locator(".tabs a").all()):
        link.click()
        page.wait_for_selector(f"#turn0 ins >> text=note {at}")


@pytest.mark.parametrize(("turn", "absent"), [("2", False), ("3", True), ("0", True), ("abc", True), ("1x", True)])
def test_a_turn_that_is_not_there_is_said(opened, turn, absent):
    page = opened([trace(memory("a"), memory("b"))], f"#rollout=12&question=q&turn={turn}")
    assert page.locator("[role=alert]").all_text_contents() == [
        f"Not in this page: rollout 12, question q, turn {turn}. The first that fits is shown."] * absent
    page.keyboard.press("j")
    page.wait_for_selector("body[data-drawn$='turn=1'], body[data-drawn$='turn=2']")
    assert page.locator("[role=alert]").count() == 0


# --- keys -----------------------------------------------------------------------------------------------------------

PRESS = "key => document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}))"


def test_keys_that_come_faster_than_the_page_is_drawn_all_count(opened):
    page = opened([*group_of(12, "1"), trace(*map(memory, "abcdefgh"), group="2", question_id="2")])
    page.evaluate(f"['n', ...'jjjjj'].forEach({PRESS})")
    page.wait_for_selector("#turn4:focus")
    assert page.evaluate("location.hash") == "#rollout=12&question=2&sample=0&turn=5"
    page.evaluate(f"['p', 'ArrowRight', 'ArrowRight', 'j'].forEach({PRESS})")
    page.wait_for_selector("#turn0:focus")
    assert page.evaluate("location.hash") == "#rollout=12&question=1&sample=2&turn=1"


def test_keys_and_letters_before_the_first_trajectory_is_there_are_no_errors(opened, tmp_path):
    folder = write(tmp_path / "run", "rollout_000012", group_of())
    page = opened.file(write_viewer(folder, folder / "view.html"), before=f"""
        new MutationObserver((_, watch) => {{
            const query = document.getElementById("query");
            if (!query) return;
            watch.disconnect();
            query.value = "silver";
            query.dispatchEvent(new Event("input"));
            document.body.dataset.early = document.querySelectorAll("#main h2").length;
            setTimeout(() => [..."dtj"].forEach({PRESS}));
        }}).observe(document, {{ childList: true, subtree: true }});""")
    page.wait_for_selector("#turn0:focus")
    assert page.evaluate("document.body.dataset.early") == "0" and page.locator("#turn1 ins").count() == 0
    page.wait_for_selector("#turn1 .gold.hit")


def test_what_is_drawn_again_stays_where_it_was(opened, tmp_path):
    shape = Shape(groups=1, siblings=2, sections=60, section_words=300)
    write_traces(tmp_path, "6400", trajectories(shape, seed=3, length="6400"))
    page = opened.file(write_viewer(tmp_path, tmp_path / "view.html"), "#turn=45")
    page.wait_for_selector("#turn44:focus")
    page.mouse.wheel(0, 150)
    top = "document.getElementById('turn44').getBoundingClientRect().top"
    page.evaluate(f"new Promise(done => (function look() {{ {top} < 60 ? done() : requestAnimationFrame(look); }})())")
    for press in ["d", "t", "d"]:
        before = page.evaluate(f"new Promise(done => setTimeout(() => done({top}), 300))")
        page.keyboard.press(press)
        assert abs(page.evaluate(top) - before) < 3 and page.locator("#turn44:focus").count() == 1
    page.get_by_role("button", name="Changes").click()
    assert page.evaluate("document.activeElement.textContent") == "Changes"


# --- much of everything ---------------------------------------------------------------------------------------------


def test_siblings_side_by_side_are_compared_as_they_are_looked_at(opened):
    turns = [[memory(words(f"s{sibling}t{turn}w", 200)) for turn in range(30)] for sibling in range(8)]
    page = opened([trace(*one, number=at) for at, one in enumerate(turns)], "#view=siblings")
    page.wait_for_selector(".siblings ins")
    assert page.locator(".siblings tbody tr").count() == 30
    assert 8 <= page.locator(".siblings tbody td").count() < 8 * 30
    page.evaluate("location.hash += '&turn=30'")
    page.wait_for_selector("tr[data-turn='29']:focus ins")


def test_memories_are_compared_once_whatever_is_searched_for(browser):
    page = browser.new_page()
    count = """
        const compare = difference;
        let compared = 0;
        difference = (...texts) => { compared++; return compare(...texts); };
        const turn = { before: "Ann has tin", memory: "Ann has silver and tin" };
        const hit = query => changedText({ query }, turn, []).querySelector(".hit").textContent;
        return ["ann", "has", "silver"].map(query => [hit(query), compared]);"""
    drawing = scripts("elements", "facts", "difference", "turns")
    assert page.evaluate(f"() => {{ {drawing} {count} }}") == [["Ann", 1], ["has", 1], ["silver", 1]]
    page.close()


def test_words_that_one_memory_alone_has_are_not_compared(browser):
    """Compared each with each, these are 400 million."""
    page = browser.new_page()
    texts = [f"Ann {words('a', 20_000)} has tin", f"Ann {words('b', 20_000)} has silver"]
    parts = page.evaluate(f"texts => {{ {scripts('facts', 'difference')} return difference(...texts); }}", texts)
    assert [(part["change"], len(part["text"].split())) for part in parts] == [
        ("same", 1), ("removed", 20_000), ("added", 20_000), ("same", 1), ("removed", 1), ("added", 1)]
    page.close()


def test_each_word_of_a_text_is_compared_with_a_fact_a_few_times(browser):
    page = browser.new_page()
    count = """
        let looked = 0;
        const words = new Proxy([...Array(900).fill("x"), "y"], { get: (all, at) => { looked++; return all[at]; } });
        const found = spansOf("x ".repeat(9000) + "z y", { words }).length;
        return [found, looked];"""
    found, looked = page.evaluate(f"() => {{ {scripts('facts')} {count} }}")
    assert found == 0 and looked < 10 * 9_000
    page.close()


def test_a_strip_has_so_many_cells_and_says_how_many_answers_have_none(opened):
    golds = [f"w{number}" for number in range(100)]
    page = opened([trace(memory(" ".join(golds)), *[memory()] * 999, golds=(*golds, "nowhere"))])
    assert page.locator(".strip td").count() == 30_000 and page.locator(".strip .cell").count() == 1_000
    legend = page.inner_text(".legend >> nth=-1")
    assert "70 other accepted answers would not fit here" in legend
    assert "1 other accepted answer stands nowhere" in legend
    assert page.locator("#turn0 .chip.entered").count() == 100


def test_turns_have_a_place_so_many_at_a_time(opened):
    page = opened([trace(*[memory("a", prompt_tokens=at) for at in range(5_002)])], "#turn=5002")
    page.wait_for_selector("#turn5001:focus")
    assert page.locator(".turn").count() == 2 and page.locator(".strip .cell").all_text_contents() == ["5001", "5002"]
    assert "turns 5,001 to 5,002 of 5,002" in page.inner_text("#main")
    for _ in range(2):
        page.keyboard.press("k")
    page.wait_for_selector("#turn4999:focus")
    assert page.locator(".turn").count() == 5_000
    page.get_by_role("link", name="those behind").first.click()
    page.wait_for_selector("#turn5000:focus")


def test_a_turn_lists_each_section_once_and_of_very_many_the_first(opened):
    document = TraceDocument(id="d", sections=tuple("ab"))
    page = opened([document, trace(memory(sections=(0, 1) * 100_000), memory(sections=tuple(range(150_000))),
                                   document="d")])
    assert page.locator("#turn0 h4").all_text_contents() == ["Read: section 1 of 2", "Read: section 2 of 2", "Memory"]
    assert page.locator("#turn1 h4").count() == 2_001
    assert "148,000 more sections that it read" in page.inner_text("#turn1")


def test_a_long_answer_and_a_long_address_leave_the_page_as_wide_as_its_window(opened):
    page = opened([trace(memory("a"), golds=("W" * 5_000,))], f"#question={'Q' * 5_000}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_a_search_says_that_it_knows_nothing_of_what_was_cut(opened, tmp_path):
    document = TraceDocument(id="d", sections=(words("a", 900),))
    run = write(tmp_path, "50", [document, trace(memory(sections=(0,)), document="d")])
    whole = write_viewer(run, tmp_path / "whole.html")
    cut = write_viewer(run, tmp_path / "cut.html", whole.stat().st_size - 200)
    nothing, absent = "0 turns with “nowhere”", "; what was cut from sections is not in this page and was not searched"
    for file, said in [(whole, nothing), (cut, nothing + absent)]:
        page = opened.file(file)
        page.fill("#query", "nowhere")
        page.keyboard.press("Enter")
        page.wait_for_selector("#count >> text=0 turns")
        assert page.inner_text("#count") == said


# --- a broken trajectory --------------------------------------------------------------------------------------------


def forged(folder, change):
    """A page of two questions in whose index the first one's line was changed."""
    write(folder, "rollout_000012", [*group_of(12, "1"), *group_of(12, "2")])
    page = write_viewer(folder, folder / "view.html")
    index, *parts = map(b64decode, _PART.findall(page.read_text()))
    values = orjson.loads(decompress(index))
    values["groups"][0] |= change
    page.write_bytes(_render(folder.name, fingerprint(folder), compress(orjson.dumps(values)), parts))
    assert is_viewer_of(folder, page)
    return page


@pytest.mark.parametrize("change", [{"facts": None}, {"documents": [99]}])
def test_what_cannot_be_drawn_leaves_the_list_of_questions(opened, tmp_path, change):
    page = opened.file(forged(tmp_path / "run", change), "#question=1")
    assert "This cannot be drawn" in page.inner_text("[role=alert] >> nth=0")
    assert page.locator("a.question").count() == 2
    page.locator("a.question").last.click()
    page.wait_for_selector("#turn1 ins.gold")
    assert opened.logged
    opened.logged.clear()


@pytest.mark.parametrize("fact", [{"text": "", "words": []}, {"text": "", "words": [""]}])
def test_an_empty_fact_stands_nowhere(opened, tmp_path, fact):
    page = opened.file(forged(tmp_path / "run", {"facts": [fact | {"articles": False}]}), "#question=1")
    assert "No accepted answer stands in what" in page.inner_text("#main") and page.locator(".turn").count() == 5
