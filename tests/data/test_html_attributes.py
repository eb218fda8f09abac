"""Tags with more attributes than people write, and what looks like one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import html

from mem_agent.data.html_attributes import with_few_attributes
from mem_agent.data.html_pages import page_text
from mem_agent.tests.helpers.cpu_time import at_most

MANY = "".join(f" a{number}" for number in range(1_100))
PICTURE = f'<img src="data:image/png;base64,{"A" * 2**20}" alt="a > b">'


@pytest.mark.parametrize("page", [
    f"<p{MANY[:4000]}>Ann", PICTURE, f"<!--{PICTURE}<p{MANY}--><p>Ann", f"<script>if (a <b {MANY}) c</script><p>Ann",
    f"<title>a <b{MANY}</title><p>Ann", f"a < b{MANY}", f'<p a="{MANY}">Ann', f"<p a='{MANY}'>Ann", f"<?p{MANY}>",
], ids=lambda page: page[:12])  # fmt: skip
def test_pages_of_people_stay_as_they_are(page):
    assert with_few_attributes(page) is page


PARTS = st.sampled_from([
    MANY, "<p", "<!--", "-->", "--!>", "-", "!", ">", "<", "/", "=", '"', "'", " ", "\n", "a", "<script", "</script",
    "<title>", "</title>", "<style>", "</style ", "<textarea", "</textarea>", "<plaintext>", "<?", "<!doctype", "</",
    "</p", "<xmp>", "</xmp>", "K", "\u212a", "<b>word</b>", "<noscript>", "<svg>",
])  # fmt: skip


@given(st.lists(PARTS, max_size=9))
@example(["<script", "/", ">", "<p", MANY, ">"])
def test_the_parser_finds_few_attributes_and_the_same_text(parts):
    page = "<i>begin</i>" + "".join(parts)
    whole, few = (html.document_fromstring(one, html.HTMLParser(huge_tree=True)) for one in (
        page, with_few_attributes(page)))
    assert max(len(element.attrib) for element in few.iter()) <= 1_000
    assert [*few.itertext()] == [*whole.itertext()]


@pytest.mark.parametrize("page", [
    "<p " + " ".join(f"a{number}=1" for number in range(100_000)) + ">Ann", "<p a=\"" * 100_000, "<p" + "/" * 10**6,
    "<!-- " * 100_000, "<script><p " * 100_000, "<title></titl" * 100_000,
], ids=lambda page: page[:12])  # fmt: skip
def test_time_is_in_proportion_to_the_page(page):
    with at_most(10):
        with_few_attributes(page)


def test_a_page_with_a_tag_that_takes_for_ever_is_read():
    with at_most(10):
        assert page_text("<p " + " ".join(f"a{number}=1" for number in range(100_000)) + ">Ann").strip() == "Ann"
