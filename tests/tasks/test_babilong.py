"""TASK=babilong: the published scoring, and what a memory is taught."""

from mem_agent.tasks import TaskRow, load_task
from mem_agent.tasks.babilong import LABELS, is_right
from mem_agent.tests.helpers.published import checkout, load

CASES = [  # target, reply, question, task, and whether booydar/babilong 7a6efee takes it as right
    ("office", "office", "Where is Mary?", "qa1", True),
    ("office", "Answer: The OFFICE.\n\nThe kitchen was", "Where is Mary?", "qa1", True),
    ("office", "The office or the kitchen", "Where is Mary?", "qa1", False),
    ("office", "Mary went home. Office", "Where is Mary?", "qa1", False),
    ("office", "backoffice", "Where is Mary?", "qa1", True),
    ("garden", "from the garden to the office", "Where was the milk before the office?", "qa3", True),
    ("office", "office", "What is east of the office?", "qa4", False),
    ("Jeff", "Fred gave it to jeff", "Who did Fred give the apple to?", "qa5", True),
    ("milk", "milk<example>apple", "What did Fred give to Bill?", "qa5", True),
    ("office", "", "Where is Mary?", "qa1", False),
]


def test_scoring_by_hand():
    for target, reply, question, task, right in CASES:
        assert is_right(target, reply, question, task) == right, reply


def test_scoring_is_the_published_codes():
    published = load(checkout("BABILONG_ROOT") / "babilong", "metrics")
    for target, reply, question, task, right in CASES:
        assert published.compare_answers(target, reply, question, published.TASK_LABELS[task]) == right
    assert {task: tuple(published.TASK_LABELS[task]) for task in LABELS} == LABELS


def test_a_row_is_worth_its_answer_and_teaches_section_by_section():
    task, facts = load_task("babilong"), ["Mary went to the office.", "Mary went to the garden."]
    row = TaskRow("Where is Mary?", ("garden",), {"babi": "qa1", "facts": facts})
    assert task.reward("Garden.", row) == {"answer": 1.0} and task.metrics("", "office", row) == {"babilong": 0.0}
    assert task.solution(row) == "garden" and task.keeper(row._replace(metadata={"babi": "qa1"})) is None
    memory_behind = task.keeper(row)
    sections = ["It rained. ", "Mary went to the office. Mary went to bed. ", "Jane sat. Mary went to", " the garden."]
    assert list(map(memory_behind, sections)) == ["", "Mary: office", "Mary: office", "Mary: garden"]
