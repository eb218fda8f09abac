"""Saved memories: of another model they are refused, damage is seen, and the file stays as it is."""

import io
import json
import random
import zipfile

import numpy as np
import pytest

from mem_agent.rewards.intrinsic.encoder import HashingEncoder
from mem_agent.rewards.intrinsic.episodic import FILE
from mem_agent.rewards.intrinsic.settings import EntropySettings, LexicalSettings
from mem_agent.rewards.intrinsic.text_reward import FILE as TEXTS
from mem_agent.rewards.intrinsic.text_reward import TextReward
from mem_agent.system.errors import ConfigError
from mem_agent.tests.helpers.attack import Attack
from mem_agent.tests.helpers.intrinsic import Table, answer, episodic

BATCH = [answer(f"What is {q} + {n}?", f"It is {q + n + wrong}.", not wrong)
         for q in range(3) for n in range(2) for wrong in (0, 1)]


def saved(tmp_path, reward):
    reward.batch_parts(BATCH)
    reward.batch_parts(BATCH[:5])
    reward.save(tmp_path)
    return reward


def refused(reward, tmp_path, file=FILE):
    before = (tmp_path / file).read_bytes() if (tmp_path / file).exists() else None
    with pytest.raises(ConfigError) as error:
        reward.load(tmp_path)
    assert before is None or (tmp_path / file).read_bytes() == before
    message = str(error.value)
    assert "\n" not in message and message.startswith(str(tmp_path / file))
    return message


def test_the_file_is_plain_arrays_and_says_what_it_is_of(tmp_path):
    saved(tmp_path, episodic(HashingEncoder(), bits=4))
    content = np.load(tmp_path / FILE, allow_pickle=False)
    assert content["success.values"].shape == (content["success.counts"].sum(), 192)
    assert content["failure.questions"].shape == (6, 16) and content["explore.window"].shape == (5,)
    about = json.loads(zipfile.ZipFile(tmp_path / FILE).read("about.json"))
    assert about == {"format": 1, "mode": "knn+", "model": "hashing", "fingerprint": "hashing-384-1-4", "dims": 384,
                     "rollouts": 2, "level": "response", "text": "reasoning", "bits": 4}


def test_a_memory_of_another_model_is_refused_by_name(tmp_path):
    saved(tmp_path, episodic(HashingEncoder()))
    message = refused(episodic(Table({}, fingerprint="other")), tmp_path)
    assert "its vectors are of 'hashing' (384 dims, hashing-384-1-4), MEM_IR_MODEL is 'table' (other); " in message
    assert message.endswith("set MEM_IR_MODEL as it was, or start a new SAVE_PATH")


def test_a_model_that_only_lies_elsewhere_is_the_same(tmp_path):
    saved(tmp_path, episodic(HashingEncoder()))
    moved = HashingEncoder()
    moved.name = "/elsewhere"
    episodic(moved).load(tmp_path)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"plus": False}, "mode=knn+, set is mode=knn;"),
        ({"level": "sentence"}, "level=response, set is level=sentence;"),
        ({"text": "reply"}, "text=reasoning, set is text=reply;"),
        ({"bits": 8}, "bits=16, set is bits=8;"),
    ],
    ids=str,
)
def test_a_memory_of_other_settings_is_refused(other, said, tmp_path):
    saved(tmp_path, episodic(HashingEncoder()))
    assert said in refused(episodic(HashingEncoder(), **other), tmp_path)


def test_limits_may_change_and_the_newest_stays(tmp_path):
    before = saved(tmp_path, episodic(HashingEncoder()))
    fewer = episodic(HashingEncoder(), keys=2, values=1, window=3)
    fewer.load(tmp_path)
    told = fewer.metrics()
    assert (told["intrinsic/success_questions"], told["intrinsic/success_vectors"]) == (2, 2)
    assert before.metrics()["intrinsic/success_questions"] == 6
    fewer.batch_parts(BATCH)


def test_a_memory_that_is_not_there_is_one_line(tmp_path):
    assert "the memory of MEM_IR is not there; set MEM_IR as it was" in refused(episodic(HashingEncoder()), tmp_path)


def same(one, other):
    return one.batch_parts(BATCH) == other.batch_parts(BATCH) and one.metrics() == other.metrics()


@pytest.mark.parametrize("file", [FILE, TEXTS])
def test_a_file_that_was_cut_is_refused_and_left(file, tmp_path):
    make = {FILE: lambda: episodic(HashingEncoder(), bits=4), TEXTS: lambda: TextReward(LexicalSettings())}[file]
    saved(tmp_path, make())
    whole = (tmp_path / file).read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / file).write_bytes(whole[:length])
        assert "the memory is damaged (" in refused(make(), tmp_path, file)


def test_an_archive_that_unpacks_to_more_than_its_length_is_refused(tmp_path):
    saved(tmp_path, episodic(HashingEncoder(), bits=4))
    with zipfile.ZipFile(tmp_path / FILE, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(2**20))
    assert "the memory is damaged (" in refused(episodic(HashingEncoder(), bits=4), tmp_path)


@pytest.mark.parametrize("file", [FILE, TEXTS])
def test_no_flipped_bit_passes_for_another_memory(file, tmp_path):
    """Either it is refused in one line, or it was one that says nothing (a date in the archive's list)."""
    make = {FILE: lambda: episodic(HashingEncoder(), bits=4), TEXTS: lambda: TextReward(LexicalSettings())}[file]
    saved(tmp_path, make())
    whole = (tmp_path / file).read_bytes()
    draw, refusals = random.Random(0), 0
    for place in draw.sample(range(len(whole)), 150):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << draw.randrange(8)
        (tmp_path / file).write_bytes(flipped)
        reward = make()
        try:
            reward.load(tmp_path)
        except ConfigError as error:
            assert "\n" not in str(error)
            refusals += 1
        else:
            (tmp_path / "again").mkdir(exist_ok=True)
            reward.save(tmp_path / "again")
            assert (tmp_path / "again" / file).read_bytes() == whole
    assert refusals > 100


def test_what_could_not_be_loaded_changes_nothing(tmp_path):
    saved(tmp_path, episodic(HashingEncoder(), bits=4))
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:-1])
    one, other = (episodic(HashingEncoder(), bits=4) for _ in range(2))
    refused(one, tmp_path)
    assert same(one, other)


def test_a_memory_before_its_first_answer_is_saved_too(tmp_path):
    episodic(HashingEncoder()).save(tmp_path)
    fresh = episodic(HashingEncoder())
    fresh.load(tmp_path)
    assert same(fresh, episodic(HashingEncoder()))


@pytest.mark.parametrize("settings", [EntropySettings(), LexicalSettings(), LexicalSettings(measure="words")], ids=str)
def test_texts_go_on_as_if_they_had_not_been_saved(settings, tmp_path):
    unbroken = saved(tmp_path, TextReward(settings))
    again = TextReward(settings)
    again.load(tmp_path)
    assert same(again, unbroken) and again._window.values == unbroken._window.values


def test_texts_of_another_mode_are_refused(tmp_path):
    saved(tmp_path, TextReward(LexicalSettings()))
    assert "mode=lexical, set is mode=entropy" in refused(TextReward(EntropySettings()), tmp_path, TEXTS)
    by_words = TextReward(LexicalSettings(measure="words"))
    assert "measure=lines, set is measure=words" in refused(by_words, tmp_path, TEXTS)


def again(tmp_path, file, about=(), **arrays):
    """The saved memory with other members, whole as an archive."""
    with zipfile.ZipFile(tmp_path / file) as whole:
        members = {member: whole.read(member) for member in whole.namelist()}
    members["about.json"] = json.dumps(json.loads(members["about.json"]) | dict(about)).encode()
    for name, array in arrays.items():
        content = io.BytesIO()
        np.lib.format.write_array(content, np.asarray(array), (1, 0))
        members[f"{name.replace('_', '.')}.npy"] = content.getvalue()
    with zipfile.ZipFile(tmp_path / file, "w") as changed:
        for member, content in members.items():
            changed.writestr(member, content)


@pytest.mark.parametrize("texts", ["5", "{}", "[5]", '"abc"', "[" * 2000 + "]" * 2000])
def test_texts_that_are_none_are_damage(texts, tmp_path):
    saved(tmp_path, TextReward(LexicalSettings()))
    again(tmp_path, TEXTS, texts=np.frombuffer(texts.encode(), np.uint8))
    assert "the memory is damaged (" in refused(TextReward(LexicalSettings()), tmp_path, TEXTS)


@pytest.mark.parametrize("window", [[np.nan], [np.inf], [[0.5, 0.5]], ["x"], 0.5])
def test_a_window_of_no_numbers_is_damage(window, tmp_path):
    saved(tmp_path, TextReward(LexicalSettings()))
    again(tmp_path, TEXTS, window=window)
    assert "the memory is damaged (" in refused(TextReward(LexicalSettings()), tmp_path, TEXTS)
    saved(tmp_path, episodic(HashingEncoder()))
    again(tmp_path, FILE, explore_window=window)
    assert "the memory is damaged (" in refused(episodic(HashingEncoder()), tmp_path)


@pytest.mark.parametrize("about", [{name: value} for name in ("dims", "rollouts")
                                   for value in (-1, 1e999, 0.5, "3", None, [], 10**400)], ids=str)
def test_counts_that_are_none_are_damage(about, tmp_path):
    saved(tmp_path, episodic(HashingEncoder()))
    again(tmp_path, FILE, about)
    assert "the memory is damaged (" in refused(episodic(HashingEncoder()), tmp_path)


class AnyText:
    """One vector of so many numbers for all texts."""

    name, fingerprint = "any", "any-1"

    def __init__(self, dims: int) -> None:
        self._dims = dims

    def encode(self, texts):
        return np.eye(self._dims, dtype=np.float32)[[0] * len(texts)]


def test_vectors_of_another_length_are_one_line(tmp_path):
    saved(tmp_path, episodic(AnyText(2)))
    reward = episodic(AnyText(4))
    reward.load(tmp_path)
    with pytest.raises(ConfigError, match="vectors of 2 numbers, those of MEM_IR_MODEL have 4; it was changed"):
        reward.batch_parts(BATCH)


def test_a_header_that_is_no_python_is_damage(tmp_path):
    saved(tmp_path, episodic(HashingEncoder()))
    with zipfile.ZipFile(tmp_path / FILE) as whole:
        members = {member: whole.read(member) for member in whole.namelist()}
    header = b"1\n  2\n 3\n"
    members["success.values.npy"] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(tmp_path / FILE, "w") as other:
        for member, content in members.items():
            other.writestr(member, content)
    assert "the memory is damaged (" in refused(episodic(HashingEncoder()), tmp_path)


@pytest.mark.parametrize("change", [
    {"success_questions": np.zeros((6, 16), np.uint8)}, {"success_questions": np.zeros((6, 8), np.uint8)},
    {"success_counts": [-1, 1, 1, 1, 1, 1]}, {"success_counts": [0, 2, 1, 1, 1, 1]},
    {"success_keys": np.zeros((6, 384))}, {"success_values": np.zeros((6, 1), np.uint8)},
], ids=lambda change: next(iter(change)))
def test_a_store_of_another_shape_is_damage(change, tmp_path):
    saved(tmp_path, episodic(HashingEncoder()))
    again(tmp_path, FILE, **change)
    assert "the memory is damaged (" in refused(episodic(HashingEncoder()), tmp_path)


@pytest.mark.parametrize(("file", "name"), [(FILE, "success.values"), (FILE, "explore.window"), (TEXTS, "texts")])
def test_an_array_of_objects_is_refused_and_none_is_made(file, name, tmp_path):
    make = {FILE: lambda: episodic(HashingEncoder(), bits=4), TEXTS: lambda: TextReward(LexicalSettings())}[file]
    saved(tmp_path, make())
    objects, victim = io.BytesIO(), tmp_path / "victim"
    np.save(objects, np.array([Attack(victim)], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / file) as whole:
        members = {member: whole.read(member) for member in whole.namelist()} | {f"{name}.npy": objects.getvalue()}
    with zipfile.ZipFile(tmp_path / file, "w") as attack:
        for member, content in members.items():
            attack.writestr(member, content)
    assert "the memory is damaged (" in refused(make(), tmp_path, file) and not victim.exists()
    with np.load(tmp_path / file, allow_pickle=True) as content:
        content[name]
    assert victim.exists(), "the attack itself works"
