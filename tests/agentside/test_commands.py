from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from amux.hub import errors as hub_errors
from amux.materializer.agentside.errors import EXIT_STATUS, Failure
from fixtures.waiting import SECONDS
from tests.agentside.scripted_hub import Documents, Refusal, unix_hub
from tests.agentside.side import Side, error_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.agentside.scripted_hub import Asked, JsonObject, ScriptedHub

# Every kind of text that a shell or a locale is known to damage.
AWKWARD = "# Ключ 记忆 🔑 é\r\n\ttab\n\n\x7f\u2028end without a newline"


F_SETPIPE_SZ = 1031  # Linux; named in fcntl from Python 3.10 on


def _revision(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("conflict", 3),
        ("unauthenticated", 4),
        ("forbidden", 4),
        ("binding_mismatch", 4),
        ("memory_disabled", 4),
        ("invalid_request", 2),
        ("invalid_path", 6),
        ("limit_exceeded", 6),
        ("rejected_content", 6),
        ("undecodable", 6),
        ("unavailable", 5),
        ("storage_failed", 1),
        ("a_code_of_a_later_hub", 1),
    ],
)
def test_each_code_of_the_hub_has_its_exit_status_and_keeps_its_fields(
    side: Side, tmp_path: Path, code: str, status: int
) -> None:
    def script(_: Asked) -> JsonObject:
        raise Refusal(400, code, {"revision": "abc", "line": 3})

    with unix_hub(tmp_path / "home/hub.sock", script):
        for arguments in (
            ("search", "x"),
            ("show", "a.md"),
            ("upsert", "a.md", "--expected-revision", "absent"),
            ("forget", "a.md", "--expected-revision", "absent"),
            ("export", "a.md"),
        ):
            done = side.memory(*arguments)
            error = error_of(done)
            assert (done.returncode, error["code"]) == (status, code)
            assert (error["revision"], error["line"]) == ("abc", 3)


def test_every_code_of_the_hub_is_known_here() -> None:
    codes = {
        kind.code
        for kind in vars(hub_errors).values()
        if isinstance(kind, type)
        and issubclass(kind, hub_errors.HubError)
        and not issubclass(kind, hub_errors.LocalRefusal)
    }
    assert codes <= set(EXIT_STATUS)
    assert Failure("unheard_of", "x").status == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("search",),
        ("search", "x", "--limit"),
        ("search", "x", "--limit", "many"),
        ("search", "x", "--limit="),
        ("search", "x", "--all=yes"),
        ("search", "-x"),
        ("search", b"\xff\xfe"),
        ("show",),
        ("show", "a.md", "b.md"),
        ("show", "a.md", "--line", "3"),
        ("show", "a.md", "--start-line", "9" * 30),
        ("upsert", "a.md"),
        ("upsert", "a.md", "--expected-revision"),
        ("upsert", "--expected-revision", "absent"),
        ("upsert", "a.md", "--expected-revision", "absent", "--file", "/nowhere/at/all"),
        ("upsert", "a.md", "--expected-revision", "absent", "--file", "/"),
        ("upsert", "a.md", "--expected-revision", "absent", "--file", ""),
        ("forget", "a.md"),
        ("export",),
    ],
)
def test_a_usage_error_is_status_2_with_the_usage_and_reaches_no_hub(
    side: Side, hub: ScriptedHub, arguments: tuple[str | bytes, ...]
) -> None:
    done = side.memory(*arguments)
    error = error_of(done)
    assert (done.returncode, error["code"]) == (2, "invalid_request")
    if arguments[0] != "frobnicate":
        assert str(error["usage"]).startswith(f"amux memory {arguments[0]!s}")
    assert hub.asked == []


def test_every_command_has_a_help_that_needs_no_hub_and_names_its_options(side: Side) -> None:
    wanted = {
        "search": ("--path-prefix", "--limit", "--cursor", "--all"),
        "show": ("--start-line", "--end-line", "--offset", "next_offset", "absent"),
        "upsert": ("--expected-revision", "--file", "absent", "merge"),
        "forget": ("--expected-revision",),
        "export": ("--json",),
    }
    overview = side.memory("--help")
    assert side.memory() == overview or side.memory().stdout == overview.stdout
    for command, words in wanted.items():
        assert command in overview.stdout.decode()
        for flag in ("--help", "-h"):
            done = side.memory(command, flag)
            assert (done.returncode, done.stderr) == (0, b"")
            assert all(word in done.stdout.decode() for word in words)
    for line in overview.stdout.decode().splitlines():
        assert len(line) <= 100


def test_nothing_to_do_is_a_usage_error_and_the_version_is_told(side: Side) -> None:
    assert side.run().returncode == 2
    assert side.run("launch").returncode == 2
    assert side.run("--version").stdout.startswith(b"amux ")
    assert b"amux memory" in side.run("--help").stdout


def test_options_are_taken_before_and_behind_words_with_and_without_an_equals_sign(
    side: Side, tmp_path: Path
) -> None:
    asked: list[JsonObject] = []

    def script(request: Asked) -> JsonObject:
        asked.append(request.body)
        return {"matches": []}

    with unix_hub(tmp_path / "home/hub.sock", script):
        side.memory("search", "--limit=20", "two words", "more", "--path-prefix", "a/b", "--json")
        side.memory("search", "--cursor", "", "--", "--all", "--limit", "7")
    assert asked == [
        {"query": "two words more", "path_prefix": "a/b", "limit": 20},
        {"query": "--all --limit 7", "cursor": ""},
    ]


def test_show_passes_its_range_and_prints_the_hubs_fields_as_one_line(
    side: Side, tmp_path: Path
) -> None:
    fields = {"path": "a.md", "exists": True, "revision": "r", "text": "é\n🔑", "later": [1]}
    asked: list[JsonObject] = []

    def script(request: Asked) -> JsonObject:
        asked.append(request.body)
        return fields

    with unix_hub(tmp_path / "home/hub.sock", script):
        done = side.memory("show", "a.md", "--start-line", "3", "--end-line=9")
        side.memory("show", "a.md", "--offset", "0", "--start-line", "-2")
    assert asked == [
        {"path": "a.md", "start_line": 3, "end_line": 9},
        {"path": "a.md", "offset": 0, "start_line": -2},
    ]
    assert json.loads(done.stdout) == fields
    assert done.stdout.count(b"\n") == 1
    assert "é\\n🔑".encode() in done.stdout


def test_a_missing_document_is_shown_as_absent_with_status_0(side: Side, hub: ScriptedHub) -> None:
    done = side.memory("show", "no.md")
    assert done.returncode == 0
    assert json.loads(done.stdout)["revision"] == "absent"
    assert hub.paths() == ["get"]


@pytest.mark.parametrize("way", ["stdin", "file", "dash"])
def test_text_goes_in_and_comes_out_byte_for_byte(
    side: Side, hub: ScriptedHub, documents: Documents, tmp_path: Path, way: str
) -> None:
    raw = AWKWARD.encode()
    source = tmp_path / os.fsdecode(b"sour\xffce.md")  # a file name need not be UTF-8
    source.write_bytes(raw)
    further = {"file": ("--file", os.fsencode(source)), "dash": ("--file", "-")}.get(way, ())
    done = side.memory(
        "upsert",
        "a.md",
        "--expected-revision",
        "absent",
        *further,
        stdin=b"" if way == "file" else raw,
        env={"LC_ALL": "C"},
    )
    assert json.loads(done.stdout)["revision"] == _revision(AWKWARD)
    assert documents.texts == {"a.md": AWKWARD}
    assert side.memory("export", "a.md", env={"LC_ALL": "C"}).stdout == raw
    whole = json.loads(side.memory("export", "a.md", "--json").stdout)
    assert whole == {"path": "a.md", "revision": _revision(AWKWARD), "text": AWKWARD}
    assert hub.paths() == ["upsert", "get", "get"]


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8", "xx_YY.nonsense"])
def test_arguments_are_utf_8_whatever_the_locale_is(
    side: Side, hub: ScriptedHub, locale: str
) -> None:
    done = side.memory("show", "项目/é.md", env={"LC_ALL": locale, "LANG": locale})
    assert done.returncode == 0
    assert hub.asked[0].body == {"path": "项目/é.md"}
    assert json.loads(done.stdout)["path"] == "项目/é.md"


def test_arguments_are_utf_8_where_the_interpreter_takes_them_for_ascii(
    side: Side, hub: ScriptedHub
) -> None:
    command = (*side.command[:-1], "-X", "utf8=0", side.command[-1])
    ascii_only = Side(command, {**side.environ, "LC_ALL": "C"}, side.cwd)
    assert ascii_only.memory("show", "项目/é.md").returncode == 0
    assert hub.asked[0].body == {"path": "项目/é.md"}
    assert "is not UTF-8" in str(error_of(ascii_only.memory("show", b"\xff"))["message"])


@pytest.mark.parametrize("raw", [b"\xff", b"ok\n\xed\xa0\x80", b"latin \xe9"])
def test_content_that_is_not_utf_8_is_refused_before_anything_is_sent(
    side: Side, hub: ScriptedHub, raw: bytes
) -> None:
    done = side.memory("upsert", "a.md", "--expected-revision", "absent", stdin=raw)
    assert (done.returncode, error_of(done)["code"]) == (6, "undecodable")
    assert hub.asked == []


def test_endless_input_is_refused_and_not_read_to_its_end(side: Side, hub: ScriptedHub) -> None:
    done = side.memory("upsert", "a.md", "--expected-revision", "absent", "--file", "/dev/zero")
    error = error_of(done)
    assert (done.returncode, error["code"]) == (6, "limit_exceeded")
    assert hub.asked == []


def test_export_joins_pages_cut_inside_characters_of_any_length(
    side: Side, hub: ScriptedHub, documents: Documents
) -> None:
    documents.texts["big.md"] = text = "aé记🔑\r\n" * 4000
    done = side.memory("export", "big.md")
    assert done.stdout.decode() == text
    assert len(hub.asked) > 5


def test_export_of_an_empty_document_prints_nothing_and_is_done(
    side: Side, hub: ScriptedHub, documents: Documents
) -> None:
    documents.texts["empty.md"] = ""
    done = side.memory("export", "empty.md")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(hub.asked) == 1


def test_export_of_a_missing_document_says_so(side: Side, hub: ScriptedHub) -> None:
    done = side.memory("export", "no.md")
    assert (done.returncode, error_of(done)["code"]) == (6, "not_found")
    assert len(hub.asked) == 1


@pytest.mark.parametrize("change", ["changed", "deleted"])
@pytest.mark.parametrize("page", [2, 3])
def test_export_prints_nothing_when_the_document_moves_between_two_pages(
    side: Side, tmp_path: Path, change: str, page: int
) -> None:
    documents = Documents({"big.md": "line\n" * 4000})
    served = 0

    def script(asked: Asked) -> JsonObject:
        nonlocal served
        served += 1
        if served == page and change == "changed":
            documents.texts["big.md"] += "another line\n"
        if served == page and change == "deleted":
            del documents.texts["big.md"]
        return documents(asked)

    with unix_hub(tmp_path / "home/hub.sock", script):
        done = side.memory("export", "big.md")
    error = error_of(done)
    assert (done.returncode, error["code"]) == (3, "conflict")
    assert error["revision"] == documents.revision("big.md")


def test_export_does_not_turn_forever_on_pages_that_do_not_go_on(
    side: Side, tmp_path: Path
) -> None:
    page = {"exists": True, "revision": "r", "text": "x", "truncated": True, "next_offset": 1}
    with unix_hub(tmp_path / "home/hub.sock", lambda _: page):
        done = side.memory("export", "a.md")
    assert done.returncode == 1
    assert error_of(done)["code"] == "internal"


def test_search_all_follows_the_cursors_and_reports_progress_on_standard_error(
    side: Side, tmp_path: Path
) -> None:
    cursors: list[str | None] = []

    def script(asked: Asked) -> JsonObject:
        assert (asked.body["query"], asked.body["limit"]) == ("word", 20)
        cursors.append(asked.body.get("cursor"))
        last = len(cursors) == 3
        return {
            "matches": [{"path": f"{len(cursors)}.md"}],
            "scanned_files": 10,
            "skipped_files": 1,
            "incomplete": not last,
            "truncated": len(cursors) == 2,
            "cursor": None if last else f"c{len(cursors)}",
        }

    with unix_hub(tmp_path / "home/hub.sock", script):
        done = side.memory("search", "word", "--all", "--limit", "20")
    assert cursors == [None, "c1", "c2"]
    assert json.loads(done.stdout) == {
        "matches": [{"path": "1.md"}, {"path": "2.md"}, {"path": "3.md"}],
        "scanned_files": 30,
        "skipped_files": 3,
        "incomplete": False,
        "truncated": True,
    }
    assert done.stderr.decode().splitlines() == [
        "10 documents searched, 1 found",
        "20 documents searched, 2 found",
    ]


def test_search_all_asks_for_as_many_matches_as_there_may_be(side: Side, tmp_path: Path) -> None:
    page = {"matches": [], "scanned_files": 1, "incomplete": False}
    with unix_hub(tmp_path / "home/hub.sock", lambda _: page) as hub:
        side.memory("search", "word", "--all")
        side.memory("search", "word", "--all", "--limit", "3")
        side.memory("search", "word")
    assert [asked.body.get("limit") for asked in hub.asked] == [20, 3, None]


def test_search_all_ends_on_a_cursor_that_comes_again(side: Side, tmp_path: Path) -> None:
    page = {"matches": [], "scanned_files": 1, "incomplete": True, "cursor": "same"}
    with unix_hub(tmp_path / "home/hub.sock", lambda _: page) as hub:
        done = side.memory("search", "word", "--all")
    assert json.loads(done.stdout)["incomplete"] is True
    assert len(hub.asked) == 2


def test_search_all_prints_no_half_of_an_answer(side: Side, tmp_path: Path) -> None:
    def script(asked: Asked) -> JsonObject:
        if "cursor" in asked.body:
            raise Refusal(403, "memory_disabled")
        return {"matches": [{"path": "a.md"}], "incomplete": True, "cursor": "c"}

    with unix_hub(tmp_path / "home/hub.sock", script):
        done = side.memory("search", "word", "--all")
    assert (done.returncode, done.stdout) == (4, b"")
    assert json.loads(done.stderr.splitlines()[-1])["error"]["code"] == "memory_disabled"


def _shell(side: Side, line: str) -> subprocess.CompletedProcess[bytes]:
    command = " ".join(side.command)
    return subprocess.run(
        ["/bin/sh", "-c", line.replace("AMUX", command)],
        env={**side.environ, "PATH": "/usr/bin:/bin"},
        cwd=side.cwd,
        capture_output=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("AMUX memory export big.md | head -c 1 >/dev/null", 0),
        ("AMUX memory show no.md >&-", 1),
        ("AMUX memory show no.md >/dev/full", 1),
        ("AMUX memory show no.md <&- >/dev/null", 0),
        ("AMUX memory show no.md <&- >&- 2>&-", 1),
        ("AMUX memory frobnicate 2>&-", 2),
        ("AMUX memory upsert a.md --expected-revision absent <&-", 2),
        ("AMUX memory --help >&-", 1),
        ("AMUX mcp <&- >&- 2>&-", 1),
        ("AMUX mcp </dev/null >&-", 0),
    ],
)
@pytest.mark.usefixtures("hub")
def test_missing_full_and_closed_streams_are_no_traceback(
    side: Side, documents: Documents, line: str, status: int
) -> None:
    documents.texts["big.md"] = "line\n" * 200_000
    done = _shell(side, line)
    assert done.returncode == status
    assert b"Traceback" not in done.stderr


def test_a_reader_that_leaves_early_is_no_traceback(
    side: Side, hub: ScriptedHub, documents: Documents
) -> None:
    documents.texts["big.md"] = "line\n" * 200_000
    reader, writer = os.pipe()
    with subprocess.Popen(
        [*side.command, "memory", "export", "big.md"],
        env=side.environ,
        stdout=writer,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(writer)
        os.read(reader, 10)
        os.close(reader)
        _, stderr = process.communicate(timeout=SECONDS)
    assert (process.returncode, stderr) == (1, b"")
    assert hub.asked


def test_a_pipe_that_an_agent_made_non_blocking_gets_everything(
    side: Side, hub: ScriptedHub, documents: Documents
) -> None:
    documents.texts["big.md"] = text = "line\n" * 100_000
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    fcntl.fcntl(writer, F_SETPIPE_SZ, 4096)  # full after one write, long before it is read
    with subprocess.Popen(
        [*side.command, "memory", "export", "big.md"], env=side.environ, stdout=writer
    ) as process:
        os.close(writer)
        select.select([reader], [], [], SECONDS)
        with os.fdopen(reader, "rb") as stream:
            assert stream.read().decode() == text
    assert process.returncode == 0
    assert hub.asked


def test_an_unwritable_home_and_folder_are_no_hindrance_and_nothing_is_written(
    side: Side, hub: ScriptedHub, home: Path, tmp_path: Path
) -> None:
    before = sorted(path for path in tmp_path.rglob("*"))
    for environ in ({"HOME": "/proc"}, {"HOME": ""}, {"HOME": "/nowhere"}, {}):
        done = side.memory("show", "a.md", env=environ)
        assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert home.exists()
    assert hub.asked


def test_an_interrupt_is_no_traceback(side: Side, tmp_path: Path) -> None:
    asked = threading.Event()

    def script(_: Asked) -> None:
        asked.set()

    with (
        unix_hub(tmp_path / "home/hub.sock", script),
        subprocess.Popen(
            [*side.command, "memory", "show", "a.md"], env=side.environ, stderr=subprocess.PIPE
        ) as process,
    ):
        assert asked.wait(SECONDS)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=SECONDS)
    assert (process.returncode, stderr) == (130, b"")


@pytest.mark.parametrize("stdin", ["/dev/null", "closed"])
def test_forgetting_to_send_text_does_not_empty_the_document(
    side: Side, hub: ScriptedHub, documents: Documents, stdin: str
) -> None:
    documents.texts["a.md"] = "precious"
    revision = documents.revision("a.md")
    source = "<&-" if stdin == "closed" else f"<{stdin}"
    done = _shell(side, f"AMUX memory upsert a.md --expected-revision {revision} {source}")
    assert done.returncode == 2
    assert documents.texts["a.md"] == "precious"
    assert hub.asked == []
    done = side.memory("upsert", "a.md", "--expected-revision", revision, "--file", "/dev/null")
    assert done.returncode == 0
    assert documents.texts["a.md"] == ""
