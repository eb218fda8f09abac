"""A folder goes to the hub whole, or one line says why not; nothing is asked of a hub here."""

import pytest
from huggingface_hub.errors import HfHubHTTPError, HTTPError, LocalTokenNotFoundError

from mem_agent.checkpoints import hub
from mem_agent.checkpoints.hub import HubError, check_token, push
from mem_agent.evaluation.card_table import main


class FakeApi:
    calls: list = []
    error: Exception | None = None

    def __getattr__(self, name):
        def call(*args, **kwargs):
            FakeApi.calls.append((name, args, kwargs))
            if FakeApi.error:
                raise FakeApi.error
            return "https://hub.example/ORG/NAME"

        return call


@pytest.fixture(autouse=True)
def api(monkeypatch):
    monkeypatch.setattr(FakeApi, "calls", [])
    monkeypatch.setattr(FakeApi, "error", None)
    monkeypatch.setattr(hub, "HfApi", FakeApi)
    return FakeApi


def test_the_whole_folder_goes_in_one_commit(api, tmp_path):
    assert push(tmp_path, "ORG/NAME", private=True) == "https://hub.example/ORG/NAME"
    (created, names, options), (uploaded, _, upload) = api.calls
    assert (created, names, options["private"], options["exist_ok"]) == ("create_repo", ("ORG/NAME",), True, True)
    assert (uploaded, upload["repo_id"], upload["folder_path"]) == ("upload_folder", "ORG/NAME", tmp_path)


@pytest.mark.parametrize("linked", ["key", "folder"])
def test_a_link_takes_nothing_of_the_users_to_the_hub(api, tmp_path, linked):
    model = tmp_path / "model" / "deep"
    for folder in (model, tmp_path / "folder"):
        folder.mkdir(parents=True)
    (tmp_path / "key").touch(), (model / "own").touch()
    (model / "within").symlink_to("own")
    push(model.parent, "ORG/NAME", private=False)
    (model / "out").symlink_to(tmp_path / linked)
    api.calls.clear()
    with pytest.raises(HubError, match=r"/deep/out: a link out of the model's folder, which is not uploaded"):
        push(model.parent, "ORG/NAME", private=False)
    assert not api.calls


def test_a_push_that_fails_says_how_to_do_it_again(api, tmp_path):
    api.error = OSError("connection\nlost")
    with pytest.raises(HubError, match=r"not pushed \(connection lost\).*mem-agent card .* --push-to-hub ORG/NAME"):
        push(tmp_path, "ORG/NAME", private=False)


@pytest.mark.parametrize(("error", "said"), [
    (LocalTokenNotFoundError("no token"), "set HF_TOKEN"),
    (OSError("no route"), "no route; check HF_TOKEN"),
    (HTTPError("Illegal header value b'Bearer hf_secret\\x01'"), r"value b'Bearer \.\.\.; check HF_TOKEN"),
    (HTTPError("refused"), "refused; check HF_TOKEN"),
    (UnicodeEncodeError("ascii", "Bearer \u00e9", 7, 8, "ordinal"), "no ASCII text; check HF_TOKEN"),
])
def test_nobody_logged_in_is_one_line(api, error, said):
    api.error = error
    with pytest.raises(HubError, match=said):
        check_token()


def test_the_token_is_asked_about_before_any_work(api, tmp_path, capsys):
    api.error = LocalTokenNotFoundError("no token")
    assert main([str(tmp_path / "nothing"), "--push-to-hub", "ORG/NAME"]) != 0
    assert [name for name, *_ in api.calls] == ["whoami"] and "HF_TOKEN" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["NAME", "a/b/c", "a b/c"])
def test_a_name_that_the_hub_would_not_take_is_refused(tmp_path, name, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--push-to-hub", name])
    assert "--push-to-hub" in capsys.readouterr().err


class Refused(HfHubHTTPError):
    def __init__(self, text):
        Exception.__init__(self, text)


def test_an_answer_of_the_hub_is_told_in_one_line(api, tmp_path):
    api.error = Refused("403 Forbidden:\nyou may not")
    with pytest.raises(HubError, match="403 Forbidden: you may not"):
        push(tmp_path, "ORG/NAME", private=False)
