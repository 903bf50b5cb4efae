"""`config.toml`: known keys only, one locked writer, and what the commands say about it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from amux.hub import config
from amux.hub.config import Settings, load, set_setting, show
from amux.hub.errors import ConfigRefused
from amux.hub.logs import JsonLines
from amux.launcher.cli import command
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from fixtures.hubs import HubHome

TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def test_the_defaults_hold_without_a_file(tmp_path: Path) -> None:
    assert load(tmp_path) == Settings()
    assert load(tmp_path).memory_enabled is False
    assert load(tmp_path).memory_isolation == "none"
    assert load(tmp_path).memory_guard == "block"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("memory = 1", "unknown setting 'memory'"),
        (
            "[memory]\nenabeld = true",
            "unknown setting 'memory.enabeld'; known are: memory.enabled,",
        ),
        ("[memory]\nenabled = 'yes'", "memory.enabled is true or false"),
        ("[memory]\nenabled = 1", "memory.enabled is true or false"),
        ("[memory]\nisolation = 'user'", "memory.isolation is one of none, principal"),
        ("[memory]\nguard = true", "memory.guard is a string"),
        ("[hub]\nnames = 'a'", "hub.names is a list of strings"),
        ("[hub]\nnames = [1]", "hub.names is a list of strings"),
        ("[memory.enabled]\nx = 1", "memory.enabled is true or false"),
        ("[memory", "is not valid TOML"),
        ("\ufeff[memory]\nenabled = true", "is not valid TOML"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigRefused, match=sentence.replace(".", r"\.")):
        load(tmp_path)
    with pytest.raises(ConfigRefused):
        set_setting(tmp_path, "memory.enabled", "true")
    assert (tmp_path / "config.toml").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("memory.enabled", "yes"),
        ("memory.enabled", ""),
        ("memory.isolation", "Principal"),
        ("memory.guard", "off"),
        ("memory.guard", ""),
        ("memory.guard_secrets", "off"),
        ("memory.guard_injections", "none"),
        ("memory.guard_invisible", "Warn"),
        ("memory", "true"),
        ("enabled", "true"),
        ("", ""),
    ],
)
def test_a_value_or_key_that_does_not_fit_is_refused_and_writes_nothing(
    tmp_path: Path, key: str, text: str
) -> None:
    with pytest.raises(ConfigRefused):
        set_setting(tmp_path, key, text)
    assert not (tmp_path / "config.toml").exists()


@given(key=st.sampled_from(config.known_keys()) | TEXT, text=TEXT)
def test_what_can_be_set_is_read_back_in_the_same_text(
    tmp_path_factory: pytest.TempPathFactory, key: str, text: str
) -> None:
    folder = tmp_path_factory.mktemp("config")
    try:
        change = set_setting(folder, key, text)
    except ConfigRefused:
        return
    value = load(folder).values()[key]
    assert value == change.after
    assert set_setting(folder, key, show(value)).after == value


def test_setting_one_key_keeps_the_others_and_the_mode(tmp_path: Path) -> None:
    set_setting(tmp_path, "hub.names", "a.example, b.example")
    set_setting(tmp_path, "memory.isolation", "principal")
    set_setting(tmp_path, "memory.enabled", "TRUE")
    change = set_setting(tmp_path, "memory.isolation", "none")
    assert (change.before, change.after) == ("principal", "none")
    found = load(tmp_path)
    assert found.hub_names == ("a.example", "b.example")
    assert (found.memory_enabled, found.memory_isolation) == (True, "none")
    assert (tmp_path / "config.toml").stat().st_mode & 0o777 == 0o600


def test_writers_in_many_processes_lose_no_setting(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from amux.hub.config import load, set_setting\n"
        "home, key = Path(sys.argv[1]), sys.argv[2]\n"
        "for n in range(40):\n"
        "    set_setting(home, key, f'value:{n}')\n"
        "    if load(home).values()[key] != f'value:{n}': sys.exit(f'{key} was lost at {n}')\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), key])
        for key in ("hub.listen", "hub.tls_cert", "hub.tls_key")
    ]
    assert [writer.wait(SECONDS) for writer in writers] == [0] * len(writers)


def test_set_asks_for_a_restart_only_when_the_running_hub_differs(hub: HubHome) -> None:
    same = _amux(hub, "system", "config", "set", "memory.enabled", "true")
    assert (same.exit_code, same.stdout, same.stderr) == (0, "memory.enabled = true\n", "")
    other = _amux(hub, "system", "config", "set", "memory.enabled", "false")
    assert other.stdout == "memory.enabled = false\n"
    assert "amux hub stop" in other.stderr
    shown = json.loads(_amux(hub, "hub", "status", "--json").stdout)
    assert shown["settings"]["memory.enabled"] == {"running": True, "configured": False}
    assert shown["restart_needed"] is True
    assert "true, after a restart false" in _amux(hub, "hub", "status").stdout
    assert _amux(hub, "hub", "stop").stdout == "The Hub has stopped.\n"
    assert hub.process is not None
    assert hub.process.wait(SECONDS) == 0
    hub.process = None
    again = _amux(hub, "system", "config", "set", "memory.enabled", "true")
    assert again.stderr == ""
    assert _amux(hub, "hub", "status").exit_code == 3
    assert _amux(hub, "hub", "stop").stdout == "No Hub runs.\n"


def test_get_prints_one_setting_or_all(hub_home: HubHome) -> None:
    assert _amux(hub_home, "system", "config", "get", "memory.isolation").stdout == "none\n"
    everything = json.loads(_amux(hub_home, "system", "config", "get", "--json").stdout)
    assert set(everything) == set(config.known_keys())
    unknown = _amux(hub_home, "system", "config", "get", "memory.nothing")
    assert unknown.exit_code == 1
    assert "known are: memory.enabled" in unknown.stderr
    assert "Traceback" not in unknown.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("credential", "issue"),
        ("credential", "issue", "--principal", "no-such-one"),
        ("credential", "issue", "--kind", "agent", "--principal", "ann"),
        ("credential", "issue", "--kind", "runtime"),
        ("credential", "issue", "--kind", "admin", "--principal", "ann"),
        ("credential", "issue", "--principal", "ann", "--any-principal"),
        ("credential", "issue", "--principal", "ann", "--expires", "soon"),
        ("credential", "revoke", "0123456789abcdef"),
        ("principal", "add", "not an id"),
        ("principal", "alias", "no-such-one", "x"),
    ],
)
def test_a_command_that_cannot_be_done_says_so_in_one_line(
    hub_home: HubHome, arguments: tuple[str, ...]
) -> None:
    hub_home.registry.principals.add("ann")
    before = (hub_home.home / "identity" / "credentials.json").read_bytes()
    result = _amux(hub_home, *arguments)
    assert result.exit_code in {1, 2}
    assert result.stdout == ""
    assert "rror" in result.stderr
    assert (hub_home.home / "identity" / "credentials.json").read_bytes() == before


def test_an_issued_credential_works_and_is_listed_without_its_secret(hub: HubHome) -> None:
    assert _amux(hub, "principal", "add", "ann", "--alias", "Ann Ä").exit_code == 0
    issued = _amux(hub, "credential", "issue", "--principal", "Ann Ä", "--expires", "30d")
    token = issued.stdout.strip()
    assert hub.call("GET", "/v1/memory/capability", token=token).code == "ok"
    listed = json.loads(_amux(hub, "credential", "list", "--json").stdout)
    row = next(row for row in listed if row["id"] == token.split("_")[2])
    assert (row["kind"], row["principal"]) == ("user", "ann")
    assert set(row) == {"id", "kind", "principal", "allowed", "label", "created", "expires"}
    assert _amux(hub, "principal", "list").stdout.splitlines()[0] == "ann\tAnn Ä"


def _amux(hub: HubHome, *arguments: str) -> Result:
    environ = {name: None for name in os.environ if name.startswith("AMUX_")}
    return CliRunner().invoke(command, list(arguments), env={**environ, **hub.environ})


def test_a_fault_is_logged_without_what_its_message_quotes() -> None:
    try:
        int("canary-in-a-message")
    except ValueError:
        caught = sys.exc_info()
    record = logging.LogRecord("hub", logging.ERROR, "f", 1, "a fault", None, caught)
    line = json.loads(JsonLines().format(record))
    assert (line["event"], line["error"]) == ("a fault", "ValueError")
    assert line["frames"][0].startswith(__file__)
    assert "canary" not in json.dumps(line)


def test_the_log_of_a_hub_started_on_demand_moves_aside_when_it_is_large(tmp_path: Path) -> None:
    script = (
        "import sys, logging; from pathlib import Path; from amux.hub import logs\n"
        "logs.LOG_BYTES = 2000; logs.start_logging(Path(sys.argv[1]))\n"
        "for n in range(100): logs.event('tick', number=n)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "hub.log")], check=True)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["hub.log", "hub.log.1"]
    last = (tmp_path / "hub.log").read_text().splitlines()[-1]
    assert json.loads(last)["number"] == 99
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
