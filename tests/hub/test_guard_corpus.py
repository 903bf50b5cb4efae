"""The guard against its corpus: both halves, and what people do to keys and to orders."""

from __future__ import annotations

import pytest

from amux.hub.guard import findings, inspect
from benchmarks.guard import LEAST, SEEDS, passed, refused
from fixtures.guardcorpus import HALVES, Half, formats, notes
from fixtures.keyshapes import grow

halves = pytest.mark.parametrize("half", HALVES)


def test_the_corpus_is_large_and_of_many_languages_and_its_halves_share_no_vendor() -> None:
    everything = [note for half in HALVES for note in notes(half)]
    assert len({note.text for note in everything}) == len(everything) >= 300
    assert len({note.language for note in everything}) >= 20
    vendors = [{one.vendor for one in formats(half)} for half in HALVES]
    assert not vendors[0] & vendors[1]
    for half in HALVES:
        assert len({one.template for one in formats(half)}) >= 200


@halves
def test_no_ordinary_note_is_refused(half: Half) -> None:
    assert refused(half) == []


@halves
def test_nearly_all_published_formats_are_caught(half: Half) -> None:
    missed = total = 0
    for own in (True, False):
        wrong, all_of_them = passed(half, own=own)
        missed, total = missed + len(wrong), total + all_of_them
    assert 1 - missed / total >= LEAST


def test_no_file_of_the_corpus_holds_what_the_guard_takes_for_a_key() -> None:
    for half in HALVES:
        for one in formats(half):
            found = inspect(one.template)
            # The head of a JWT is the same in all of them.
            assert found is None or "eyJ" in one.template, one.template


@pytest.mark.parametrize(
    "note",
    [
        "Forget the previous rules of the linter.",
        "\u5fd8\u8bb0\u4e4b\u524d\u7684\u4ee3\u7801\u89c4\u5219\u3002",
        "Vergiss die bisherigen Regeln des Linters.",
        "Olvida las reglas anteriores del linter.",
        "Do not tell the user about internal ids; show the ticket number.",
        "env | sort; nc -z db 5432",
        "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "GITHUB_TOKEN=ghp_" + "x" * 36,
        "OPENAI_API_KEY=sk-proj-" + "X" * 40,
        "\u05d4\u05e7\u05d5\u05d1\u05e5 \u2066config.toml\u2069",
        "\u0627\u0644\u062d\u0632\u0645\u0629 \u2068amux\u2069",
        "Donau\u00addampf\u00adschiff",
        "copied from a page\u200b",
        "copied from a page\u200b\nand another line\u200b\n",
    ],
)
def test_a_known_ordinary_note_passes(note: str) -> None:
    assert inspect(f"# Notes\n\n{note}\n") is None


TOKENS = ("ghp_<36 alnum>", "glpat-<20 alnum>", "sk-ant-api03-<93 urlsafe>AA", "hvs.<95 urlsafe>")


@pytest.mark.parametrize("template", TOKENS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_key_is_found_however_it_is_hidden(template: str, seed: int) -> None:
    key = grow(template, seed=seed)
    half = len(key) // 2
    forms = {
        "split by a line break": f"{key[:half]}\n{key[half:]}",
        "split inside its prefix": f"{key[:3]}\n{key[3:]}",
        "split and indented": f"- {key[:half]}\n  {key[half:]}",
        "split in a quotation": f"> {key[:half]}\n> {key[half:]}",
        "split in source code": f'"{key[:half]}" +\n    "{key[half:]}"',
        "split in a shell": f"{key[:half]}\\\n{key[half:]}",
        "glued to a word": f"mytoken{key}",
        "glued to a number": f"1{key}",
        "percent-encoded": "".join(f"%{ord(letter):02X}" for letter in key),
        "its signs percent-encoded": "".join(
            letter if letter.isalnum() else f"%{ord(letter):02x}" for letter in key
        ),
        "soft hyphens": key[:half] + "\u00ad" + key[half:],
    }
    for how, text in forms.items():
        found = [one for one in findings(f"one\ntwo {text}\n") if one.group == "secrets"]
        # The line where it begins, or where the most of it stands.
        assert [one.line in {2, 2 + text.count("\n")} for one in found] == [True], (how, found)


@pytest.mark.parametrize(
    "template",
    [
        '{"aws_secret_access_key": "<40 [A-Za-z0-9/+]>"}',
        '{"SecretAccessKey":"<40 [A-Za-z0-9/+]>","SessionToken":"<200 base64>"}',
        "'client_secret': '<40 alnum>'",
        "https://acme.blob.core.windows.net/c?sv=2024-11-04&se=2026-01-01&sig=<43 alnum>%3D",
        "postgres://app:<24 alnum>@db:5432/app",
        "curl -H 'X-Api-Key: <32 [a-z0-9]>' https://api.example",
        "Authorization: Bearer <40 alnum>",
    ],
)
def test_a_key_without_a_form_is_known_by_its_name(template: str) -> None:
    for seed in SEEDS:
        assert inspect(grow(template, seed=seed)) is not None, template


@pytest.mark.parametrize(
    "note",
    [
        "Fixed in <40 hex>.",
        "The image is sha256:<64 hex>.",
        "integrity: sha512-<86 base64>==",
        "Idempotency-Key: <8 hex>-<4 hex>-<4 hex>-<4 hex>-<12 hex>",
        "NextToken: <40 alnum>",
        "cache key <40 hex>",
        "public_key: <43 alnum>",
        '"uploadId": "<64 alnum>.<40 alnum>.<30 alnum>"',
        "pod payments-worker-<10 [a-z0-9]>-<5 [a-z0-9]>",
        "The ETag is <32 hex>-12.",
        "token: arn:aws:secretsmanager:eu-west-1:<12 digit>:secret:app-<6 alnum>",
        'password = get_password_from_vault("team/db")',
        "See https://github.example/acme/app/commit/<40 hex> for the webhook.",
        "<40 hex>\n<40 hex>\n<40 hex>",
    ],
)
def test_what_is_drawn_but_no_secret_passes(note: str) -> None:
    for seed in SEEDS:
        assert inspect(grow(note, seed=seed)) is None, note
