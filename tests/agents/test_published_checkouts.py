"""The written files against the published repositories themselves, character by character, where a checkout is given:

    MEMAGENT_ROOT=... REMEMR1_ROOT=... RULER_ROOT=... MEMSIFTER_ROOT=... bash tests/run.sh

The published templates are taken out of the checkout here once more, by ``ast.literal_eval``, and filled as the
published code fills them. Prompts are the agents' own, turn by turn, without the chat around them.
"""

import ast
import copy
import logging
import random
import re
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

from mem_agent.agents import build_agent
from mem_agent.agents.documents import Chunks, split_chunks
from mem_agent.agents.interface import Reading
from mem_agent.agents.one_prompt import BASELINES
from mem_agent.agents.prompts import load_prompts
from mem_agent.agents.published import main
from mem_agent.agents.records import Generation, StopReason
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config
from mem_agent.data.questions import PoolQuestion
from mem_agent.data.ruler.sample import Corpus, Essay, Haystack, load_wording
from mem_agent.data.ruler.tasks import TASKS
from mem_agent.tests.helpers import published
from mem_agent.tests.helpers.scripted import QUESTION, VOCABULARY, read
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer


def root(name):
    """The checkout that has a set of texts; skips where it is not given."""
    return published.checkout(f"{name.partition('-')[0].upper()}_ROOT")


def constants(name, file):
    """The literals that a file assigns to names, attributes included; where it has none, what a call begins with."""
    plain, begun = {}, {}
    for node in ast.walk(ast.parse((root(name) / file).read_text())):
        if isinstance(node, ast.Assign):
            called = isinstance(node.value, ast.Call) and bool(node.value.args)
            target = ast.unparse(node.targets[0]).removeprefix("self.")
            with suppress(ValueError):
                (begun if called else plain)[target] = ast.literal_eval(node.value.args[0] if called else node.value)
    return begun | plain


@pytest.fixture
def written(tmp_path):
    """The file of a set."""

    def write(name, folder=None):
        path = tmp_path / f"{name}.yaml"
        assert main(["--checkout", str(folder or root(name)), "--of", name, "--output", str(path)]) == 0
        return str(path)

    return write


HEAD, TAIL = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def messages(run):
    assert all(prompt.startswith(HEAD) and prompt.endswith(TAIL) for prompt in run.prompts)
    return [prompt.removeprefix(HEAD).removesuffix(TAIL) for prompt in run.prompts]


def by_tokens(template, **values):
    """MemAgent's and ReMemR1's TokenTemplate: whatever is not {letters} stays as it is."""
    return re.sub(r"\{([a-zA-Z_]+)\}", lambda slot: values[slot[1]], template)


def test_without_a_checkout_the_parts_are_found_by_parsing(written, tmp_path):
    """Invented texts in the layout of ReMemR1's repository; the file would raise if it ran."""
    (tmp_path / "recurrent/impls").mkdir(parents=True)
    (tmp_path / "recurrent/impls/memory_revisit.py").write_text(
        'raise SystemExit\nTEMPLATE = "{chunk} {memory} {recalled_memory} {prompt} {{}}"\n'
        'TEMPLATE_FINAL_BOXED = "{memory} {recalled_memory} {prompt}"\n'
        'class A:\n    def f(self):\n        self.NO_MEMORY_STRING = "none"\n'
        '        self.NO_MEMORY_RECALLED_STRING = "-"\n'
    )
    assert yaml.safe_load(Path(written("rememr1-train", tmp_path)).read_text()) == {
        "revisit": "{section} {memory} {recalled} {problem} {{}}", "revisit_final": "{memory} {recalled} {problem}",
        "empty_memory": "none", "no_recall": "-",
    }
    assert main(["--checkout", str(tmp_path), "--of", "memagent-train", "--output", str(tmp_path / "out.yaml")]) == 1


# --- MemAgent -------------------------------------------------------------------------------------------------------

EVAL = "taskutils/memory_eval/utils/"


def test_memagents_turns_of_training(written):
    """Those of its evaluations: ``evaluation/test_published_clients.py``."""
    known = constants("memagent-train", "recurrent/impls/memory.py")
    empty = known["NO_MEMORY_TOKENS"]
    run = read(["a {memory} in braces", "", "x\ny ", "done"], mem_prompts=written("memagent-train"))
    memories = [empty, "a {memory} in braces", empty, "x\ny "]
    expected = [by_tokens(known["TEMPLATE"], prompt=QUESTION, memory=memory, chunk=chunk)
                for memory, chunk in zip(memories, ["QW", "ZR", "XY"], strict=False)]
    answer = by_tokens(known["TEMPLATE_FINAL_BOXED"], prompt=QUESTION, memory=memories[-1])
    assert messages(run) == [*expected, answer] and r"\boxed{{}}" in answer


DOCUMENT = "Document 1:\n{problem} costs 5 $ {}\n\nDocument 2:\nß\tend"


def asked_once(path, mode, document=DOCUMENT):
    """The text of the one prompt of EVAL_MODE ``mode``."""
    agent = BASELINES[mode](Config(), VOCABULARY, load_prompts("section_first", path), lambda content: content)
    reading = Reading(VOCABULARY.encode_text(QUESTION), Chunks((VOCABULARY.encode_text(document),), 0))
    (request,) = agent.requests(agent.start(reading))
    return VOCABULARY.tokenizer.decode(request.prompt_ids)


@pytest.mark.parametrize("name,file", [("memagent-eval", "openai_api.py"), ("memagent-boxed", "boxed.py")])
def test_the_direct_prompt(written, name, file):
    template = constants(name, EVAL + file)["template_0shot"]
    expected = template.replace("$DOC$", DOCUMENT.strip()).replace("$Q$", QUESTION.strip())
    assert asked_once(written(name), "direct") == expected


# --- ReMemR1 --------------------------------------------------------------------------------------------------------

# Its training asks before it adds, and encodes what it carries again.
CHUNK, REPLY, TURNS = 30, 160, 6
SAID = (
    "<thinking>so</thinking><update>Anna has the red key</update>\n<recall>who saw Anna?</recall>",
    "<update>Ben saw Anna\nby the mill</update><recall>the key and the door</recall> <recall>Lyon</recall>",
    "<update>Cleo in Lyon</update><recall>qqq\nzzz</recall>",
    "no tags, the key of Ben",
    "  <recall>blue</recall> <update>the door is blue </update> ",
    "<recall>nothing that matches: 東京</recall>",
)
CHAT = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}assistant:\n"


def their_prompts(agent, question, document, replies):
    """The prompts of all turns, of two equal readings: it reads none alone. ``replies`` are token ids by turn."""
    questions = np.empty(2, object)
    questions[:] = [question] * 2
    agent.start(SimpleNamespace(
        batch={"context_length": torch.tensor([len(document)] * 2), "context_ids": torch.tensor([document] * 2)},
        non_tensor_batch={"prompt_ids": questions},
    ), {})
    found = []
    while not agent.done():
        (message, _), _ = agent.action()
        agent.update(SimpleNamespace(batch={"responses": torch.tensor([replies[len(found)]] * 2)}))
        found.append(message.tolist())
    return found


def our_prompts(agent, question, document, replies):
    state, found = agent.start(Reading(question, split_chunks(document, CHUNK, TURNS))), []
    while requests := agent.requests(state):
        reply = replies[len(found)]
        found += [request.prompt_ids for request in requests]
        state = agent.advance(state, [Generation(reply, [0.0] * len(reply), StopReason.STOP)])
    return found


@pytest.mark.parametrize("order,same", [("ask_first", True), ("add_first", False)])
def test_every_turn_of_rememr1s_training(written, order, same):
    absent = ("verl", "tensordict", "omegaconf", "openai")
    module = published.load(root("rememr1"), "recurrent.impls.memory_revisit", *absent)
    logging.getLogger(module.logger.name).setLevel(logging.ERROR)
    tokenizer = copy.deepcopy(make_tokenizer(thinking_tokens=False))
    tokenizer.chat_template = CHAT
    vocabulary = Vocabulary(tokenizer)
    sizes = {"context_key": "", "max_prompt_length": 50, "chunk_size": CHUNK, "max_chunks": TURNS,
             "max_memorization_length": REPLY, "max_final_response_length": REPLY}
    theirs = published.settle_ties(module).MemoryAgent(tokenizer, module.MemoryConfig(**sizes))
    agent = build_agent(
        Config(agent="rememr1", mem_prompts=written("rememr1-train"), mem_max_memory=REPLY, mem_max_final=REPLY,
               agent_args=f"carry=reply recall=tfidf_tokens recall_order={order}"), vocabulary, {},
    )
    rng, question, equal = random.Random(4), vocabulary.encode_text("Who has the red key?"), []
    for _ in range(40):
        letters = rng.choices("abcdefgh", k=CHUNK * TURNS - rng.randint(0, 9))
        document = [vocabulary.encode_text(letter)[0] for letter in letters]
        replies = [[*vocabulary.encode_text(rng.choice(SAID)), tokenizer.eos_token_id] for _ in range(TURNS + 1)]
        wanted, given = (prompts(one, question, document, replies)
                         for prompts, one in ((their_prompts, theirs), (our_prompts, agent)))
        equal += [w == g for w, g in zip(wanted, given, strict=True)]
    assert len(equal) == 40 * (TURNS + 1) and all(equal) == same


# --- MemSifter ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", BASELINES)
def test_memsifters_question_about_chats(written, mode):
    prompts = yaml.safe_load((root("memsifter") / "configs/chat_default_prompt.yaml").read_text())
    template = prompts["prompt_template"]["user_prompt_text"]
    expected = template.format(history_chats=DOCUMENT, question=QUESTION)
    assert asked_once(written("memsifter-chat"), mode) == expected


# --- RULER ----------------------------------------------------------------------------------------------------------

DOCUMENTS = tuple(f"Title {n}\nFact {n} is well known." for n in range(40))
ASKED = PoolQuestion("", "What is fact 3?", ("known",), gold=(3, 8), paragraphs=(3, 8, 1))
CORPUS = Corpus("corpus.json", DOCUMENTS, (ASKED,))
SYNTHETIC = {"ruler": "scripts/data/synthetic", "memagent-ruler": "taskutils/memory_data/synthetic"}
LISTS = {"ruler": "scripts/synthetic.yaml", "memagent-ruler": "taskutils/memory_data/synthetic/synthetic.yaml"}


def singular(text):
    """``generate_input_output`` of niah.py where one value is asked for."""
    return text.replace("Some", "A").replace("are all", "is").replace("are", "is").replace("answers", "answer")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", SYNTHETIC)
def test_ruler(written, name, task):
    """Document, question and answer prefix in a direct prompt of nothing else are RULER's prompt; MemAgent's has the
    question alone."""
    of = yaml.safe_load((root(name) / LISTS[name]).read_text())[task]
    args, texts = of["args"], constants(name, f"{SYNTHETIC[name]}/constants.py")["TASKS"][of["task"]]
    wording = load_wording(Path(written(name)))
    haystack = Haystack(wording, Essay("It rained. Did it stop? No.", "essay.txt"), CORPUS, ASKED)
    sample = TASKS[task].make(random.Random(7), 2048, len, haystack)
    niah, query, one = constants(name, f"{SYNTHETIC[name]}/niah.py"), sample.extra.get("value", ASKED.question), False
    assert wording.texts["noise"] == niah["haystack"]
    if task in ("niah_single_1", "vt"):
        assert niah["haystack"] in sample.context
    if task.startswith("niah"):
        keys, kind, each = sample.extra["keys"], args["type_needle_v"], args["num_needle_v"]
        for key, value in zip((key for key in keys for _ in range(each)), sample.answers, strict=True):
            assert niah["needle"].format(type_needle_v=kind, key=key, value=value) in sample.context
        one, query = args["num_needle_q"] * each == 1, re.sub(r", (?=[^,]*$)", ", and ", ", ".join(keys))
    values = {"query": query, "num_v": 5, "num_cw": 10, "type_needle_v": args.get("type_needle_v", "")}
    if one:  # generate_input_output of niah.py
        values["type_needle_v"] = values["type_needle_v"][:-1]
    template, prefix = texts["template"], texts["answer_prefix"]
    before, behind = wording.around(TASKS[task].words, TASKS[task].kind)
    if name == "memagent-ruler":
        assert sample.input == (singular(template) if one else template).format(**values)
        assert sample.answer_prefix == prefix.format(**values) and (before, behind) == ("", "")
        return
    whole = singular(template + prefix) if one else template + prefix  # prepare.py
    shown = f"{before}{sample.context}{behind}\n{sample.input}{sample.answer_prefix}"
    assert shown == whole.format(context=sample.context, **values)
