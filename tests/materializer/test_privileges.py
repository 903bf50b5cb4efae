from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amux.materializer import privileges as module
from fixtures.accounts import STRANGER
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.materializer.trial import Trial
    from amux.materializer.values import Identity
    from fixtures.accounts import Account

pytestmark = pytest.mark.root

FILE = Path(module.__file__)
PRELUDE = (
    "import ctypes, importlib.util, json, os, sys, types\n"
    f"spec = importlib.util.spec_from_file_location('privileges', {str(FILE)!r})\n"
    "privileges = importlib.util.module_from_spec(spec); spec.loader.exec_module(privileges)\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "def keep(bits):\n"
    "    data = (privileges._CapData * 2)()\n"
    "    for bit in bits:\n"
    "        data[0].permitted |= 1 << bit; data[0].effective |= 1 << bit\n"
    "    assert libc.capset(ctypes.byref(privileges._CapHeader(0x20080522, 0)), data) == 0\n"
)


def child(code: str, target: Identity, **options: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401
    who = {"uid": target.uid, "gid": target.gid, "groups": list(target.groups)}
    setup = f"target = types.SimpleNamespace(**{who!r})\n"
    return subprocess.run(
        (sys.executable, "-I", "-S", "-c", PRELUDE + setup + code),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        **options,
    )


STATUS = (
    "facts = dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines())\n"
    "print(json.dumps({key: facts[key].split() for key in ('Uid', 'Gid', 'Groups', 'CapInh',"
    " 'CapPrm', 'CapEff', 'CapAmb', 'NoNewPrivs', 'Umask')}))\n"
)


def test_every_id_group_mask_and_capability_is_the_targets_and_privileges_cannot_grow(
    target: Identity,
) -> None:
    groups = (*target.groups, STRANGER, STRANGER + 1)
    done = child(f"target.groups = {groups!r}\nprivileges.drop(target)\n" + STATUS, target)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["Uid"] == [str(target.uid)] * 4
    assert facts["Gid"] == [str(target.gid)] * 4
    assert {int(gid) for gid in facts["Groups"]} == set(groups)
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(facts[name][0], 16) == 0
    assert facts["NoNewPrivs"] == ["1"]
    assert facts["Umask"] == ["0077"]


def test_a_set_id_program_gains_nothing(
    place: Path, target: Identity, as_target: Callable[[str], Trial]
) -> None:
    tool = place / "id"
    tool.write_bytes(Path("/usr/bin/id").read_bytes())
    tool.chmod(stat.S_ISUID | stat.S_ISGID | 0o755)
    assert as_target(f"{tool} -u; {tool} -g").stdout.split() == [
        str(target.uid).encode(),
        str(target.gid).encode(),
    ]


def test_a_service_that_is_not_root_keeps_no_capability_either(
    target: Identity, bob: Account, place: Path, target_python: str
) -> None:
    """Leaving uid 0 clears capabilities; leaving another uid does not."""
    copy = place / "privileges.py"
    copy.write_bytes(FILE.read_bytes())
    copy.chmod(0o644)
    code = (
        PRELUDE.replace(str(FILE), str(copy))
        + f"target = types.SimpleNamespace(uid={target.uid}, gid={target.gid}, groups=())\n"
        + "privileges.drop(target)\n"
        + STATUS
    )
    ids = (f"--reuid={bob.uid}", f"--regid={bob.gid}", "--clear-groups")
    capabilities = ("--inh-caps=+setuid,+setgid", "--ambient-caps=+setuid,+setgid")
    done = subprocess.run(
        ("/usr/bin/setpriv", *ids, *capabilities, target_python, "-I", "-S", "-c", code),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["Uid"] == [str(target.uid)] * 4
    assert {int(facts[name][0], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}


@pytest.mark.parametrize(
    ("kept", "missing"), [((7,), "CAP_SETGID"), ((6,), "CAP_SETUID"), ((), "both")]
)
def test_a_step_that_is_not_permitted_is_fatal(
    target: Identity, kept: tuple[int, ...], missing: str
) -> None:
    code = (
        f"keep({kept!r})\n"
        "try: privileges.drop(target)\n"
        "except privileges.NotDropped as error: sys.exit(f'fatal: {error}')\n"
        "print('went on')\n"
    )
    done = child(code, target)
    assert (done.returncode, done.stderr[:6]) == (1, "fatal:"), missing


@pytest.mark.parametrize(
    ("sabotage", "found"),
    [
        ("os.setresuid = lambda *ids: None", "user ids are"),
        ("os.setresgid = lambda *ids: None", "group ids are"),
        ("os.setgroups = lambda groups: None", "groups are"),
        ("privileges.check = os.setresuid = os.setresgid = lambda *any: None", "were not dropped"),
        ("target.uid = 0", "cannot isolate a launch"),
    ],
)  # fmt: skip
def test_a_change_that_did_not_happen_is_noticed(
    target: Identity, sabotage: str, found: str
) -> None:
    """Each call answers success without effect, as under a broken security module."""
    code = (
        "os.setgroups([4242])\n"
        f"{sabotage}\n"
        "try: privileges.drop(target)\n"
        "except privileges.NotDropped as error: print(error)\n"
    )
    assert found in child(code, target).stdout


def test_memory_that_is_still_the_services_cannot_be_read_by_the_target(
    target: Identity,
) -> None:
    code = (
        "privileges.drop(target)\n"
        "print(libc.prctl(3, 0, 0, 0, 0), os.stat('/proc/self/mem').st_uid)\n"
    )
    assert child(code, target).stdout.split() == ["0", "0"]


def test_keys_in_the_services_session_keyring_are_out_of_reach(target: Identity) -> None:
    number = module.KEYCTL_NUMBERS[os.uname().machine]
    add_key = {250: 248, 219: 217}[number]
    look = f"libc.syscall({number}, 10, -3, b'user', b'amux-test', 0)"
    code = (
        f"libc.syscall({number}, 1, 0, 0, 0, 0)\n"
        f"assert libc.syscall({add_key}, b'user', b'amux-test', b'secret', 6, -3) > 0\n"
        f"assert {look} > 0\n"
        "privileges.drop(target)\n"
        f"print({look})\n"
    )
    assert child(code, target).stdout.strip() == "-1"


def test_the_death_signal_is_armed_and_a_parent_that_is_gone_is_noticed(target: Identity) -> None:
    code = (
        "privileges.drop(target, death_signal=9, parent=os.getppid())\n"
        "armed = ctypes.c_int(); libc.prctl(2, ctypes.byref(armed), 0, 0, 0)\n"
        "print(armed.value)\n"
    )
    assert child(code, target).stdout.strip() == str(int(signal.SIGKILL))
    gone = code.replace("os.getppid()", "os.getppid() + 1")
    assert "has ended" in child(gone, target).stderr


def test_importing_it_costs_no_heavy_module() -> None:
    code = (
        PRELUDE.replace("importlib.util, json, ", "importlib.util, ") + "print(list(sys.modules))"
    )
    done = subprocess.run(
        (sys.executable, "-I", "-S", "-c", code), capture_output=True, text=True, check=True
    )
    for heavy in ("json", "typing", "platform", "subprocess", "dataclasses", "enum"):
        assert f"'{heavy}'" not in done.stdout or heavy in {"typing", "enum"}
