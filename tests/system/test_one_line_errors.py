"""What a command says as it ends."""

import os
import subprocess
import sys

import pytest

ENDING = "from mem_agent.system.one_line_errors import one_line_errors as ended"
FULL = "error: standard output, or a file that the system does not name: No space left on device\n"


def test_what_an_output_cannot_write_is_a_question_mark():
    command = f"{ENDING}\n@ended('go on')\ndef main():\n print('5 \\u2013 \\xe9')\nmain()"
    for encoding, told in (("ascii", b"5 ? ?\n"), ("latin-1", b"5 ? \xe9\n"), ("UTF8", "5 \u2013 \xe9\n".encode())):
        ended = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True,
                               env=os.environ | {"PYTHONIOENCODING": encoding})
        assert ended.stdout == told


@pytest.mark.parametrize(("body", "output", "code", "said"), [
    ("print(1)", "/dev/null", 0, ""),
    ("print(1)", "/dev/full", 1, FULL), ("print('1' * 99_999)", "/dev/full", 1, FULL),
    ("print(1); open('/dev/full', 'w').write('1' * 99_999)", "/dev/null", 1, FULL),
    ("open('/dev/none/a', 'w')", "/dev/null", 1, "error: /dev/none/a: No such file or directory\n"),
    (r"raise OSError(2, 'is\nnot\x1b[2J there\x9b', 'a\tb')", "/dev/null", 1,
     "error: a\tb: is not\N{REPLACEMENT CHARACTER}[2J there\N{REPLACEMENT CHARACTER}\n"),
    ("raise OSError('a' * 10**6)", "/dev/null", 1, f"error: {'a' * 4096}…\n"),
    ("raise KeyboardInterrupt", "/dev/null", 130, "interrupted; go on\n"),
])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_end_is_one_line_that_names_the_file(body, output, code, said, unbuffered):
    command = f"{ENDING}\nimport sys\n@ended('go on')\ndef main():\n {body}\n return 0\nsys.exit(main())"
    with open(output, "w") as stdout:
        environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
        ended = subprocess.run([sys.executable, "-c", command], stdout=stdout, stderr=subprocess.PIPE, text=True,
                               env=environment)
    assert (ended.returncode, ended.stderr) == (code, said)
