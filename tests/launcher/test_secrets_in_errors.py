"""No command prints a credential that it was given in a wrong way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from amux.hub.connection import Connection
from amux.hub.errors import HomeRefused, HubError
from amux.hub.secret import redact, sole_credential
from amux.hub.transport import UnixTransport
from fixtures.hubs import new_home
from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    from fixtures.hubs import HubHome

AMUX: Final = str(Path(sys.executable).with_name("amux"))
SECRET: Final = "Zm9v-YmFy_" + "x" * 33
TOKEN: Final = "amux_user_" + "0123456789abcdef" + "_" + SECRET


@pytest.fixture
def home(tmp_path: Path) -> HubHome:
    return new_home(tmp_path / "h")


def _amux(home: HubHome, *arguments: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [AMUX, *arguments],
        env=home.environ,
        input=text,
        capture_output=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.mark.parametrize(
    "content",
    [
        TOKEN + "\n# made on Monday\n",
        TOKEN + "\0",
        TOKEN + "\n" + TOKEN,
        TOKEN[:30] + " " + TOKEN[30:],
        TOKEN + "ä",
        "Bearer " + TOKEN,
        TOKEN.replace("user", "agent"),
        "\ufeff\ufeff" + TOKEN,
        "",
        "\0" * 100,
    ],
)
@pytest.mark.parametrize("way", ["file", "stdin"])
def test_a_token_file_that_holds_more_is_refused_without_the_token(
    home: HubHome, tmp_path: Path, content: str, way: str
) -> None:
    file = tmp_path / "token"
    file.write_text(content, encoding="utf-8")
    name = str(file) if way == "file" else "-"
    done = _amux(
        home,
        "hub",
        "connect",
        "https://localhost:1",
        "--token-file",
        name,
        text=content.encode() if way == "stdin" else b"",
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert SECRET[:20].encode() not in done.stderr + done.stdout


def test_bytes_that_are_no_text_are_refused_in_one_sentence(home: HubHome, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(b"\xff\xfe" + TOKEN.encode("utf-16-le"))
    done = _amux(home, "hub", "connect", "https://localhost:1", "--token-file", str(file))
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("around", ["{}", "{}\n", " {}\r\n", "\ufeff{}\n"])
def test_one_credential_with_blanks_or_a_mark_around_it_is_read(around: str) -> None:
    assert sole_credential(around.format(TOKEN)) == TOKEN


@pytest.mark.parametrize(
    "arguments",
    [
        ("hub", "connect", "https://localhost:1", TOKEN),
        ("hub", "connect", "https://localhost:1", "--token-file", TOKEN),
        ("hub", "connect", f"https://{TOKEN}@localhost:1", "--token-file", "-"),
        ("hub", "connect", TOKEN, "--token-file", "-"),
        ("credential", "revoke", TOKEN),
        ("credential", "issue", "--principal", TOKEN),
        ("principal", "alias", TOKEN, "x"),
        ("sessions", "show", TOKEN),
        ("system", "config", "set", TOKEN, "x"),
        ("system", "config", "set", "hub.listen", TOKEN),
        ("launch", TOKEN),
        (TOKEN,),
    ],
)
def test_a_credential_in_a_wrong_place_is_not_repeated(
    home: HubHome, arguments: tuple[str, ...]
) -> None:
    done = _amux(home, *arguments, text=TOKEN.encode())
    assert done.returncode != 0
    assert SECRET.encode() not in done.stderr + done.stdout
    assert b"Traceback" not in done.stderr


def test_an_error_of_the_hub_holds_no_secret_whatever_it_is_made_of(tmp_path: Path) -> None:
    assert SECRET not in str(HubError(f"refused {TOKEN}"))
    shown = "amux_user_0123456789abcdef_…"
    assert redact(f"a {TOKEN} b {TOKEN}") == f"a {shown} b {shown}"
    with pytest.raises(HomeRefused) as caught:
        Connection(url="https://localhost", token=TOKEN + "\nX: y")
    assert SECRET not in str(caught.value)
    with pytest.raises(HomeRefused) as caught:
        Connection(url="https://name:pass@localhost", token=TOKEN)
    assert "pass@" not in str(caught.value)
    transport = UnixTransport(tmp_path / "none.sock", seconds=1)
    headers = {"Authorization": f"Bearer {TOKEN}\r\n"}
    with pytest.raises(HubError) as refused:
        transport.exchange("GET", "/", headers=headers, body=None)
    assert SECRET not in str(refused.value)
