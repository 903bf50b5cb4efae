"""The same story through separate invocations of the installed command and of the one file."""

from __future__ import annotations

import hashlib
import json
import subprocess
from typing import TYPE_CHECKING, Any

from tests.agentside.side import SYSTEM, Side, error_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.agentside.real_hub import RealHub

TOPIC = "projects/amux/decisions.md"
BIG = "# Decisions\n" + "".join(f"- {n}: 记住 é 🔑 decision\n" for n in range(1500))


def _revision(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _ok(side: Side, *arguments: str, stdin: str = "") -> dict[str, Any]:
    done = side.memory(*arguments, stdin=stdin.encode())
    assert (done.returncode, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_write_search_export_correct_refuse_and_forget(real_side: Side, real_hub: RealHub) -> None:
    side = real_side
    assert _ok(side, "show", "MEMORY.md")["revision"] == "absent"

    entry = "# Memory\n- prefers short answers\n"
    written = _ok(side, "upsert", "MEMORY.md", "--expected-revision", "absent", stdin=entry)
    assert written == {"path": "MEMORY.md", "revision": _revision(entry), "unchanged": False}
    again = _ok(side, "upsert", "MEMORY.md", "--expected-revision", "absent", stdin=entry)
    assert again["unchanged"] is True  # a retry after a lost answer is settled
    _ok(side, "upsert", TOPIC, "--expected-revision", "absent", stdin=BIG)

    found = _ok(side, "search", "记住", "SHORT", "--limit", "1")
    assert [match["path"] for match in found["matches"]] == ["MEMORY.md"]
    assert found["truncated"] is True
    found = _ok(side, "search", "decision", "--path-prefix", "projects/amux", "--all")
    assert found["matches"][0]["revision"] == _revision(BIG)
    assert found["incomplete"] is False

    first = _ok(side, "show", TOPIC)
    assert first["truncated"] is True
    second = _ok(side, "show", TOPIC, "--offset", str(first["next_offset"]))
    assert BIG.startswith(first["text"] + second["text"])
    assert _ok(side, "show", TOPIC, "--start-line", "2", "--end-line", "2")["text"].startswith(
        "- 0: 记住"
    )
    assert side.memory("export", TOPIC).stdout.decode() == BIG

    corrected = entry.replace("short", "long")
    _ok(side, "upsert", "MEMORY.md", "--expected-revision", _revision(entry), stdin=corrected)
    stale = side.memory(
        "upsert", "MEMORY.md", "--expected-revision", _revision(entry), stdin=b"overwritten"
    )
    assert stale.returncode == 3
    assert error_of(stale)["revision"] == _revision(corrected)
    stale = side.memory("forget", "MEMORY.md", "--expected-revision", _revision(entry))
    assert stale.returncode == 3
    assert side.memory("export", "MEMORY.md").stdout.decode() == corrected

    gone = _ok(side, "forget", TOPIC, "--expected-revision", _revision(BIG))
    assert gone == {"path": TOPIC, "revision": "absent", "already_absent": False}
    assert _ok(side, "forget", TOPIC, "--expected-revision", "absent")["already_absent"] is True
    assert _ok(side, "show", TOPIC)["exists"] is False
    assert _ok(side, "search", "decision")["matches"] == []
    files = list((real_hub.home / "memory").rglob("*.md"))
    assert [path.name for path in files] == ["MEMORY.md"]


REFUSED: tuple[tuple[tuple[str, ...], str, int, str], ...] = (
    (("show", "../../etc/passwd"), "", 6, "invalid_path"),
    (("show", "/etc/passwd.md"), "", 6, "invalid_path"),
    (("show", ""), "", 6, "invalid_path"),
    (("show", "a.md", "--start-line", "3", "--end-line", "1"), "", 2, "invalid_request"),
    (("search", ""), "", 2, "invalid_request"),
    (("search", "x", "--limit", "21"), "", 6, "limit_exceeded"),
    (("upsert", "a.md", "--expected-revision", "zzz"), "x", 2, "invalid_request"),
    (("upsert", "MEMORY.md", "--expected-revision", "absent"), "x" * 3000, 6, "limit_exceeded"),
    (
        ("upsert", "a.md", "--expected-revision", "absent"),
        "key: AKIA" + "Z7QK3M5N2P4R6T7V\n",
        6,
        "rejected_content",
    ),
    (("upsert", "a.md", "--expected-revision", "absent"), "x" * 70_000, 6, "limit_exceeded"),
    (("upsert", "a.md", "--expected-revision", "absent"), "x" * 900_000, 6, "limit_exceeded"),
    (("export", "a.md"), "", 6, "not_found"),
)


def test_what_the_hub_refuses_has_its_status(real_side: Side) -> None:
    for arguments, text, status, code in REFUSED:
        done = real_side.memory(*arguments, stdin=text.encode())
        assert (error_of(done)["code"], done.returncode) == (code, status)


def test_a_launch_ends_at_its_binding_its_lease_and_the_switch(
    real_side: Side, real_hub: RealHub, tmp_path: Path
) -> None:
    environ = real_hub.open_launch("launch-1", tmp_path)
    show = ("show", "MEMORY.md")

    def refusal(env: dict[str, str]) -> tuple[int, object]:
        done = real_side.memory(*show, env=env)
        return done.returncode, error_of(done)["code"]

    assert real_side.memory(*show, env=environ).returncode == 0
    assert refusal({"AMUX_CONNECTION": environ["AMUX_CONNECTION"]}) == (4, "binding_mismatch")
    wrong = {**environ, "AMUX_MEMORY_BINDING": "principal:mallory"}
    assert refusal(wrong) == (4, "binding_mismatch")
    real_hub.restart(memory_enabled="false")
    assert refusal(environ) == (4, "memory_disabled")
    real_hub.restart(memory_enabled="true")
    assert real_side.memory(*show, env=environ).returncode == 0
    real_hub.end_launch("launch-1")
    assert refusal(environ) == (4, "unauthenticated")
    real_hub.stop()
    assert refusal(environ) == (5, "unavailable")


def test_64_commands_at_once_are_all_done(real_hub: RealHub, onefile: Path, tmp_path: Path) -> None:
    side = Side((SYSTEM, "-I", "-S", str(onefile)), real_hub.environ, tmp_path)
    real_hub.restart(memory_enabled="true")
    began = [
        subprocess.Popen(
            [*side.command, "memory", "upsert", f"n/{number}.md", "--expected-revision", "absent"],
            env=side.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(64)
    ]
    done = [process.communicate(b"text\n") for process in began]
    assert [process.returncode for process in began] == [0] * 64, [said for _, said in done]
    assert len(list((real_hub.home / "memory/global/n").iterdir())) == 64
