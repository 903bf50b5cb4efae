"""What a relocated home's environment, a folder's name or a host lacks is said in one line."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amux.launcher.launch import launch
from amux.launcher.request import LaunchRequest
from amux.providers.claude import ClaudeProvider
from amux.providers.codex import CodexProvider
from amux.providers.errors import BadArguments
from amux.providers.pi import PiProvider
from fixtures.accounts import account, reachable_folder
from fixtures.isolated import isolated_host, scripted
from fixtures.requests import grant, planned, request
from fixtures.scripted_provider import install_scripted_agent, scripted_registry
from fixtures.stages import AMUX
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amux.launcher.host import Host
    from amux.providers.base import Provider

ADDRESS = "http://ann:hunter2@proxy.example:3128"


@pytest.fixture(name="base")
def _base(tmp_path: Path) -> LaunchRequest:
    return LaunchRequest(
        provider="scripted",
        cwd=tmp_path,
        environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        executable=install_scripted_agent(tmp_path / "bin"),
        private_home=tmp_path / "private",
    )


def warnings(
    base: LaunchRequest, host: Host, more: Mapping[str, str], **changes: object
) -> tuple[str, ...]:
    changed = replace(base, environment={**base.environment, **more}, **changes)  # type: ignore[arg-type]
    with launch(changed, replace(host, providers=scripted_registry())) as run:
        return run.report.warnings


def test_a_proxy_with_a_password_is_not_handed_on_and_that_is_said(
    base: LaunchRequest, host: Host
) -> None:
    more = {"HTTPS_PROXY": ADDRESS, "http_proxy": "http://proxy.example:3128", "X_PROXY": ADDRESS}
    (warning,) = warnings(base, host, more)
    assert warning.startswith("HTTPS_PROXY holds a user's name or password and is not handed on")
    assert "hunter2" not in warning
    assert warnings(base, host, more, pass_names=("HTTPS_PROXY",)) == ()
    assert warnings(base, host, more, private_home=None) == ()


def test_a_ca_file_that_is_not_there_is_said(
    base: LaunchRequest, host: Host, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").touch()
    more = {"SSL_CERT_FILE": str(tmp_path / "ca.pem"), "NODE_EXTRA_CA_CERTS": "/nowhere/ca.pem"}
    (warning,) = warnings(base, host, more)
    assert warning == "NODE_EXTRA_CA_CERTS names /nowhere/ca.pem, which your account cannot read"


@pytest.mark.root
def test_the_command_looks_as_the_target_at_its_folder_and_at_ca_files() -> None:
    with isolated_host() as host, account() as target, reachable_folder() as folder:
        (folder / "open.pem").touch()
        (folder / "closed.pem").touch(mode=0o600)
        program = scripted(folder, "/usr/bin/python3", "print(os.getcwd())\n")
        (target.home / "own").mkdir(mode=0o700)
        os.chown(target.home / "own", target.uid, target.gid)
        (target.home / "link").symlink_to(target.home / "own")
        environ = {
            **host.environ,
            "SSL_CERT_FILE": str(folder / "open.pem"),
            "SSL_CERT_DIR": str(folder),
            "CURL_CA_BUNDLE": str(folder / "closed.pem"),
        }

        def launched(cwd: Path) -> subprocess.CompletedProcess[str]:
            words = ("launch", "pi", "--user", target.name, "--principal", "ann", "--cwd", cwd)
            return subprocess.run(
                [AMUX, *words, "--executable", program],
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
            )

        done = launched(target.home / "link")
        assert (done.returncode, done.stdout) == (0, f"{target.home}/own\n"), done.stderr
        named = f"CURL_CA_BUNDLE names {folder}/closed.pem, which user {target.name} cannot read"
        assert [line for line in done.stderr.splitlines() if "names" in line] == [
            f"amux: warning: {named}"
        ]
        for place, why in ((host.home, "Permission denied"), (folder / "none", "No such file")):
            done = launched(place)
            assert done.returncode == 125
            assert f"the folder {place} cannot be entered by user {target.name} (" in done.stderr
            assert why in done.stderr
            assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("provider", [ClaudeProvider(), CodexProvider(), PiProvider()])
def test_an_agent_that_cannot_start_in_a_folder_without_a_utf_8_name_is_refused_in_one_line(
    provider: Provider,
) -> None:
    version = {"claude": "2.1.332", "codex": "0.171.0", "pi": "1.6.0"}[provider.name]
    asked = request(version=version, cwd=os.fsdecode(b"/home/ann/lat\xe9in"))
    for memory in (grant(), None):
        with pytest.raises(BadArguments, match=r"cannot start in /home/ann/lat\\xe9in, whose name"):
            planned(provider, asked, memory)


def test_a_folder_and_arguments_without_utf_8_pass_through_where_the_agent_takes_them(
    host: Host, tmp_path: Path
) -> None:
    folder = os.fsencode(tmp_path) + b"/lat\xe9in"
    os.mkdir(folder)  # noqa: PTH102  # bytes
    words = ("launch", "generic", "--", "/bin/sh", "-c", 'pwd; printf %s "$1"', "sh")
    done = subprocess.run(
        [AMUX, *words, b"\xff\xfe"],
        env={**host.environ, "PATH": "/usr/bin:/bin"},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout) == (0, folder + b"\n\xff\xfe"), done.stderr


@pytest.mark.root
@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("umount -l /proc", "/proc/sys/kernel/random/boot_id"),
        (
            'mount --bind "$HOME" "$HOME"; mount -o remount,bind,ro "$HOME"',
            "Read-only file system",
        ),
    ],
)
def test_a_host_without_proc_and_a_home_that_is_read_only_are_told_in_one_line(
    host: Host, tmp_path: Path, before: str, said: str
) -> None:
    line = f"{before}; exec {AMUX} launch generic -- /bin/true"
    done = subprocess.run(
        ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", line],
        env={**host.environ, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 125
    assert done.stderr.count("\n") == 1, done.stderr
    assert said in done.stderr
