"""Ordinary notes about security, configuration, prompts and emoji are never refused."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from amux.hub.guard import inspect
from fixtures.memory import open_memory

NOTES = Path(__file__).parents[2] / "fixtures" / "memories" / "ordinary.txt"
_LANGUAGE = re.compile(r"(en|zh|de|fa|hi)\n")


def notes() -> list[tuple[str, str]]:
    """Return the notes, each with its language, which a line of its own begins."""
    found, language = [], ""
    for note in NOTES.read_text("utf-8").split("\n%%\n"):
        text = note.strip("\n") + "\n"
        start = _LANGUAGE.match(text)
        if start:
            language, text = start[1], text[start.end() :]
        found.append((language, text))
    return found


def test_none_of_200_ordinary_notes_is_refused() -> None:
    refused = {
        (finding.rule, text) for _, text in notes() if (finding := inspect(text)) is not None
    }
    assert refused == set()


def test_the_notes_are_many_and_of_four_languages_and_speak_of_what_could_be_mistaken() -> None:
    languages = [language for language, _ in notes()]
    assert len(languages) >= 200
    assert {
        language: languages.count(language) >= 20 for language in set(languages)
    } == dict.fromkeys(("en", "zh", "de", "fa", "hi"), True)
    assert len({text for _, text in notes()}) == len(languages)
    everything = "".join(text for _, text in notes())
    words = ["ghp_", "sk-", "PRIVATE KEY", "system prompt", "previous instructions", "<|im_start|>"]
    words += ["vorherigen Anweisungen", "\u5ffd\u7565\u4e4b\u524d\u7684\u6307\u4ee4"]
    joined = ["\u200d", "\u200c", "\u200f", "\ufe0f", "\U000e0100", "\U000e007f"]
    for telling in words + joined:
        assert telling in everything, ascii(telling)
    assert any(unicodedata.category(character) == "So" for character in everything)


def test_an_ordinary_note_is_written_and_read_back_as_it_was(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    for number, (_, text) in enumerate(notes()[::9]):
        memory.put(f"{number}.md", text)
        assert memory.show(f"{number}.md").text == text
