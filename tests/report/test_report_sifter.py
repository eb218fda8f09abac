"""The sifter's scores in a report: alone, and beside evaluations."""


import pytest

from mem_agent.memsifter.table import FILE, SifterScores, sifter_scores, write_scores
from mem_agent.report.__main__ import main, make_report
from mem_agent.report.sifter import sifter_plot, sifter_tables
from mem_agent.tests.helpers.fake_results import write_run
from mem_agent.tests.helpers.sifter_files import small_results


@pytest.fixture
def results(tmp_path):
    root = small_results(tmp_path / "results")
    write_scores(root / FILE, sifter_scores(root))
    return root


def test_a_folder_of_stages_is_a_report(results, capsys):
    assert main([str(results)]) == 0
    told = capsys.readouterr().out
    page = (results.parent / "report" / "index.html").read_text()
    for text in (told, page):
        assert "ranker" in text and "83.3" in text and "NDCG@10" in text
    assert "by type of question" in page and "by type of question" not in told
    assert "rows are missing" in told and 'id="sifter"' in page and 'id="standing"' not in page
    assert {path.name for path in (results.parent / "report").iterdir()} == {"index.html", "report.md", "sifter.png"}


def test_it_stands_beside_evaluations(results, tmp_path):
    run = write_run(tmp_path / "run", lengths=("50",), questions=4)
    make_report([results, run], tmp_path / "page")
    page = (tmp_path / "page" / "index.html").read_text()
    assert 'id="sifter"' in page and 'id="standing"' in page and "Evaluation of results, run" in page
    make_report([run], tmp_path / "other")
    alone = (tmp_path / "other" / "index.html").read_text()
    assert 'id="sifter"' not in alone and "#sifter" not in alone


def test_stages_without_scores_say_what_makes_them(tmp_path, capsys):
    assert main([str(small_results(tmp_path / "results"))]) == 1
    assert "mem-agent sifter-table" in capsys.readouterr().err


def test_several_folders_are_told_apart(results):
    scores = sifter_scores(results)
    titles = [table.title for table in sifter_tables([("first", scores), ("second", scores)])]
    assert "Sessions found, first" in titles and "Sessions found, second" in titles and len(titles) == 10


def test_without_scores_there_is_no_plot(results):
    assert sifter_plot([("x", SifterScores())]) == [] == sifter_tables([("x", SifterScores())])
