"""One rename replaces a regular file; whatever else lies in its place stays there."""

import errno
import fcntl
import os
import resource
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from mem_agent.system.atomic_file import (
    NotAFile,
    appending,
    cut,
    draft_of,
    remove_drafts,
    replacing,
    set_apart,
    write_atomically,
    write_for_owner,
)
from mem_agent.system.errors import MemAgentError


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def make_link_to_device(path: Path) -> None:
    make_device(path.with_name("null"))
    path.symlink_to("null")


def make_link_loop(path: Path) -> None:
    path.symlink_to("other")
    path.with_name("other").symlink_to(path.name)


@pytest.mark.parametrize(
    "make", [make_fifo, make_device, make_socket, Path.mkdir, make_link_to_device, make_link_loop]
)
def test_what_is_no_regular_file_is_refused_and_stays(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    path = Path("out")
    make(path)
    before = {p.name: os.lstat(p).st_mode for p in tmp_path.iterdir()}
    for write in (lambda: write_atomically(path, b"new"), lambda: appending(path)):
        with pytest.raises(NotAFile, match=r"^out: is (a folder|no regular file) and stays as it is; name a") as error:
            write()
        assert isinstance(error.value, MemAgentError) and isinstance(error.value, OSError)
    assert {p.name: os.lstat(p).st_mode for p in tmp_path.iterdir()} == before


def test_open_descriptors_are_refused_even_where_they_lead_to_a_file(tmp_path):
    """``/dev/stdout`` is a link to ``/proc/self/fd/1``; its double here, since code that fails would replace it."""
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    (tmp_path / "link").symlink_to("stdout")
    (tmp_path / "fd").symlink_to("/proc/self/fd")
    kept = os.dup(1)
    with (tmp_path / "log").open("wb") as log:
        os.dup2(log.fileno(), 1)
    try:
        for path in (tmp_path / "stdout", tmp_path / "link", tmp_path / "fd" / "1", Path("/proc/self/fd/1")):
            with pytest.raises(NotAFile, match="no regular file"):
                write_atomically(path, b"new")
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    assert (tmp_path / "log").read_bytes() == b"" and (tmp_path / "stdout").is_symlink()


def test_a_link_stays_and_the_file_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "old").write_bytes(b"old")
    (tmp_path / "second").symlink_to("data/old")
    (tmp_path / "first").symlink_to(tmp_path / "second")
    with replacing(tmp_path / "first") as file:
        file.write(b"new")
        assert (tmp_path / "first").read_bytes() == b"old"
    assert (tmp_path / "first").is_symlink() and (tmp_path / "second").is_symlink()
    assert (tmp_path / "data" / "old").read_bytes() == b"new"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["data", "first", "old", "second"]


def test_a_link_to_nothing_yet_makes_the_file_where_it_leads(tmp_path):
    (tmp_path / "link").symlink_to("made")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "made").read_bytes() == b"new"


@pytest.mark.parametrize("link,leads,said", [
    ("run/rows", "../mine", "if it is yours, put the file itself in its place: rm {link} && cp -r {mine} {link}"),
    ("run/rows", "{mine}", "if it is yours, put the file itself in its place: rm {link} && cp -r {mine} {link}"),
    ("run/rows", "../absent", "remove it: rm {link}"),
    ("run/rows", "out/mine", "if it is yours, put the file itself in its place: rm {link} && cp -r {mine} {link}"),
    ("run/rows", "second", "if it is yours, put the file itself in its place: rm {link} && cp -r {mine} {link}"),
    ("named/rows", "../mine", "if it is yours, put the file itself in its place: rm {link} && cp -r {mine} {link}"),
])
def test_a_link_out_of_its_folder_is_refused_and_what_it_leads_to_stays(tmp_path, link, leads, said):
    """The folder may be a stranger's: ``report/questions.csv -> ../../../.bashrc``."""
    mine, link = tmp_path / "mine", tmp_path / link
    mine.write_bytes(b"mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "named").symlink_to("run")
    (tmp_path / "run" / "out").symlink_to(tmp_path)
    (tmp_path / "run" / "second").symlink_to("../mine")
    link.symlink_to(leads.format(mine=mine))
    for write in (lambda: write_atomically(link, b"new"), lambda: appending(link)):
        with pytest.raises(NotAFile) as told:
            write()
        what = f"{link}: is a link out of the folder that it lies in, and is not followed"
        assert str(told.value) == f"{what}; {said.format(link=link, mine=mine)}"
    assert mine.read_bytes() == b"mine" and link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "named", "run"]


@pytest.mark.parametrize("name", ["rows", "of two words", "-i", "link"])
@pytest.mark.parametrize("write", [lambda path: appending(path).close(), lambda path: cut(path, 1)])
def test_a_file_that_has_other_names_is_refused_and_the_remedy_keeps_them(tmp_path, monkeypatch, name, write):
    """An archive of results may hold ``results/50.jsonl`` as a hard link to ``.netrc`` where it is unpacked."""
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "mine").chmod(0o600)
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    path = Path(name)
    if name == "link":
        path.symlink_to("led-to")
        path = Path("led-to")
    path.hardlink_to("../mine")
    path.with_name(f"{path.name}.copy").symlink_to("../mine")
    with pytest.raises(NotAFile) as told:
        write(Path(name))
    assert str(told.value).startswith(f"{name}: has other names (hard links), under which it would change as well")
    assert Path("../mine").read_bytes() == b"mine"
    command = str(told.value).split("in its place: ")[1].split("; or go on in a copy of the folder (cp -r)")[0]
    subprocess.run(["bash", "-c", command], check=True)
    write(Path(name))
    assert Path("../mine").read_bytes() == b"mine" and path.read_bytes() in (b"mine", b"m")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and {*os.listdir()} == {name, path.name}


def test_a_file_without_a_name_is_appended_to(tmp_path, monkeypatch):
    """Its last holder removed it after it was opened here; who locks it finds out."""
    def opened(path, *flags):
        try:
            return really(path, *flags)
        finally:
            os.unlink(path)

    really = os.open
    monkeypatch.setattr(os, "open", opened)
    appending(tmp_path / "a").close()


def test_a_file_that_is_set_apart_is_the_same_and_its_other_name_keeps_what_it_had(tmp_path):
    (tmp_path / "copy").write_bytes(b"old")
    (tmp_path / "file").hardlink_to(tmp_path / "copy")
    set_apart(tmp_path / "absent")
    for number in range(2):
        set_apart(tmp_path / "file")
        with appending(tmp_path / "file") as file:
            file.write(b" new")
        assert (tmp_path / "file").read_bytes() == b"old" + b" new" * (number + 1)
    assert sorted((path.name, path.stat().st_nlink) for path in tmp_path.iterdir()) == [("copy", 1), ("file", 1)]
    assert (tmp_path / "copy").read_bytes() == b"old"


def make_link_out(path: Path) -> None:
    path.symlink_to("../mine")


def make_link_to_nothing(path: Path) -> None:
    path.symlink_to("../absent")


def make_second_name(path: Path) -> None:
    path.hardlink_to(path.parent.parent / "mine")


@pytest.mark.parametrize("make", [make_fifo, Path.mkdir, make_link_out, make_link_to_nothing, make_second_name])
def test_what_lies_where_a_draft_would_be_is_not_written_and_stays(tmp_path, make):
    """A process of a container has a small number, and a stranger's folder room for thousands of links."""
    folder, mine = tmp_path / "run", tmp_path / "mine"
    folder.mkdir()
    mine.write_bytes(b"mine")
    in_the_way = draft_of(folder / "run.json")
    make(in_the_way)
    before = os.lstat(in_the_way)
    write_atomically(folder / "run.json", b"new")
    assert (folder / "run.json").read_bytes() == b"new" and mine.read_bytes() == b"mine"
    assert os.path.samestat(os.lstat(in_the_way), before)
    assert sorted(path.name for path in folder.iterdir()) == [in_the_way.name, "run.json"]
    assert [path.name for path in tmp_path.iterdir() if path != folder] == ["mine"]


def test_the_second_name_of_a_draft_is_locked_and_removed_when_abandoned(tmp_path):
    draft_of(tmp_path / "a.json").symlink_to("../absent")
    with replacing(tmp_path / "a.json"):
        second, = (path for path in tmp_path.iterdir() if not path.is_symlink())
        remove_drafts(tmp_path)
        assert second.exists()
    second.touch()
    remove_drafts(tmp_path)
    assert not second.exists()


def test_a_draft_of_a_killed_process_of_this_number_is_written_anew(tmp_path):
    draft_of(tmp_path / "a.json").write_bytes(b"longer than what follows")
    write_atomically(tmp_path / "a.json", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.json", b"new")]


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize("old,new", [(None, 0o644), (0o644, 0o644), (0o600, 0o600), (0o640, 0o640), (0o400, 0o600),
                                     (0o444, 0o644), (0o666, 0o644), (0o4777, 0o644), (0, 0o600)])
def test_what_replaces_a_file_is_closed_to_whom_that_was(tmp_path, usual_umask, old, new):
    path = tmp_path / "a"
    if old is not None:
        path.touch()
        path.chmod(old)
    with replacing(path) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == new, "from the beginning"
    assert stat.S_IMODE(path.stat().st_mode) == new


@pytest.mark.parametrize("draft", [0o644, 0o666])
def test_no_draft_that_others_may_open_takes_the_place_of_a_private_file(tmp_path, usual_umask, draft):
    (tmp_path / "a").touch()
    (tmp_path / "a").chmod(0o600)
    draft_of(tmp_path / "a").touch()
    draft_of(tmp_path / "a").chmod(draft)
    write_atomically(tmp_path / "a", b"new")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert draft_of(tmp_path / "a").read_bytes() == b""


def test_a_secret_is_written_through_no_link_and_into_no_file_of_before(tmp_path):
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("mine")
    (tmp_path / "old").write_bytes(b"old")
    with (tmp_path / "old").open("rb") as open_before:
        for name in ("link", "old", "new"):
            write_for_owner(tmp_path / name, b"secret")
            assert (tmp_path / name).read_bytes() == b"secret"
            assert stat.S_IMODE(os.lstat(tmp_path / name).st_mode) == 0o600
        assert open_before.read() == b"old" and (tmp_path / "mine").read_bytes() == b"mine"


def test_a_failed_block_leaves_the_old_file_alone(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "file") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"old")]


def test_a_full_disk_has_the_name_of_the_file(tmp_path):
    """Of errors that have no name, a full disk's alone is the written file's."""
    full = OSError(errno.ENOSPC, "No space left on device")
    for error, name in ((full, str(tmp_path / "a")), (OSError(errno.EIO, "of another file"), None)):
        with pytest.raises(OSError) as told, replacing(tmp_path / "a"):
            raise error
        assert told.value.filename == name and list(tmp_path.iterdir()) == []


@pytest.fixture
def small_files():
    """Files of more than 4096 bytes cannot be written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_write_that_fails_names_its_file(tmp_path, small_files):
    path = tmp_path / "grown"
    with pytest.raises(OSError) as replaced:
        write_atomically(path, b"x" * 5000)
    with appending(path) as file, pytest.raises(OSError) as appended:
        assert file.write(b"x" * 5000) == 4096
        file.write(b"x")
    for told in (replaced, appended):
        assert told.value.errno == errno.EFBIG and str(told.value) == f"[Errno 27] File too large: '{path}'"


def test_a_file_that_cannot_be_made_is_named_and_not_its_draft(tmp_path):
    (tmp_path / "file").touch()
    for path, said in (
        (tmp_path / "none" / "a", "No such file or directory"), (tmp_path / "file" / "a", "Not a directory"),
        (tmp_path / ("a" * 250), "File name too long"),
    ):
        with pytest.raises(OSError, match=f"{said}: '{path}'"):
            write_atomically(path, b"x")


def test_whatever_goes_wrong_with_a_write_names_its_file(tmp_path, monkeypatch):
    """Not of the kinds that say a full disk: an input and output error, say."""
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}/a'"):
        write_atomically(tmp_path / "a", b"x")


def test_what_is_appended_stays_behind_what_is_there_also_through_a_link(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "link").symlink_to("old")
    with appending(tmp_path / "link") as file:
        file.write(b" new")
    assert (tmp_path / "old").read_bytes() == b"old new" and (tmp_path / "link").is_symlink()


def test_drafts_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path):
    for name in (".a.json.1.tmp", ".b.json.1.tmp", ".note.tmp", "c.1.tmp"):
        (tmp_path / name).touch()
    with replacing(tmp_path / "a.json") as file:
        file.write(b"new")
        remove_drafts(tmp_path, "a.json")
        assert not (tmp_path / ".a.json.1.tmp").exists() and (tmp_path / ".b.json.1.tmp").exists()
        remove_drafts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".note.tmp", "a.json", "c.1.tmp"]
    assert (tmp_path / "a.json").read_bytes() == b"new"


def test_on_nfs_drafts_are_locked_and_removed_as_well(tmp_path, monkeypatch):
    """There flock takes a lock of bytes (flock(2)): an exclusive one needs a file that is open for writing."""
    def of_bytes(file, how):
        if how & fcntl.LOCK_EX and not file.writable():
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        taken.append(Path(file.name).name)

    taken: list[str] = []
    monkeypatch.setattr(fcntl, "flock", of_bytes)
    (tmp_path / ".a.json.1.tmp").touch()
    remove_drafts(tmp_path)
    write_atomically(tmp_path / "b.json", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["b.json"]
    assert taken == [".a.json.1.tmp", f".b.json.{os.getpid()}.tmp"]


def test_a_draft_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    flock = fcntl.flock

    def between(file, how):
        monkeypatch.setattr(fcntl, "flock", flock)
        remove_drafts(tmp_path)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", between)
    write_atomically(tmp_path / "a.json", b"new")
    assert (tmp_path / "a.json").read_bytes() == b"new"


def test_without_locks_no_draft_is_removed(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    (tmp_path / ".a.json.1.tmp").touch()
    remove_drafts(tmp_path)
    write_atomically(tmp_path / "b.json", b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.json.1.tmp", "b.json"]
