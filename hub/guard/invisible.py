"""Characters that a reader does not see, where no script or emoji needs them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PICTURES: Final = (
    r"\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf"
    r"\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
# Blocks of scripts whose spelling uses ZWJ and ZWNJ (Unicode, chapters 9, 12, 13 and 16).
_JOINING: Final = (
    r"\u0600-\u07ff\u0840-\u08ff\u0900-\u0dff\u0f00-\u109f\u1700-\u17ff\u1800-\u18af"
    r"\u1900-\u1aaf\u1b00-\u1c4f\ua840-\ua8ff\ua980-\uaadf\uabc0-\uabff\ufb50-\ufdff\ufe70-\ufefe"
    r"\U00010840-\U00010fff\U00011000-\U000119ff\U0001e900-\U0001e95f"
)
_WITHOUT_SPACES: Final = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aad"
_RIGHT_TO_LEFT: Final = (
    r"\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
)


@dataclass(frozen=True, slots=True)
class Invisible:
    """One kind of unseen character, why it is refused, and where it is valid."""

    name: str
    characters: str
    """A character class's inside."""
    valid: str | None
    """A pattern that matches at a valid one, given what stands around it."""
    source: str
    positive: tuple[str, ...]
    negative: tuple[str, ...] = ()
    right_to_left: bool = False
    """Valid anywhere in a line that holds right-to-left text, which needs them."""


KINDS: Final[tuple[Invisible, ...]] = (
    Invisible(
        "control-character",
        r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f",
        None,
        "terminal escape injection; CWE-150",
        ("a\x00b", "\x1b[2Jgone", "\x08", "\x85"),
        ("tab\there", "line\r\nline"),
    ),
    Invisible(
        "bidi-override",
        r"\u202d\u202e",
        None,
        "CVE-2021-42574, Trojan Source",
        ("if \u202eadmin", "\u05e9\u05dc\u05d5\u05dd \u202eadmin\u202c"),
    ),
    Invisible(
        "bidi-control",
        r"\u202a-\u202c\u2066-\u2069",
        None,
        "CVE-2021-42574, Trojan Source; Unicode, UAX 9 for isolates in right-to-left text",
        ("\u2066x\u2069", "\u202badmin\u202c"),
        (
            "\u05d4\u05e7\u05d5\u05d1\u05e5 \u2066config.toml\u2069 \u05db\u05d0\u05df",
            "\u0627\u0644\u0645\u0644\u0641 \u202bconfig\u202c",
        ),
        right_to_left=True,
    ),
    Invisible(
        "direction-mark",
        r"\u061c\u200e\u200f",
        None,
        "Unicode, UAX 9",
        ("ad\u200emin", "x\u200f"),
        (
            "\u05e9\u05dc\u05d5\u05dd\u200f!",
            "\u200f\u05e9\u05dc\u05d5\u05dd",
            "\u0633\u0644\u0627\u0645 (\u200e",
            "\u05e9\u05dc\u05d5\u05dd `team/db`.\u200e",
        ),
        right_to_left=True,
    ),
    Invisible(
        "tag-character",
        r"\U000e0000-\U000e007f",
        None,  # flags such as Scotland's are taken out before
        "embracethered, ASCII smuggling",
        ("hi\U000e0068\U000e0069", "\U0001f600\U000e0041"),
        ("\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",),
    ),
    Invisible(
        "joiner",
        r"\u200c\u200d",
        rf"(?<=[{_JOINING}]).|(?<=[{_PICTURES}\ufe0f])\u200d(?=[{_PICTURES}])",
        "Unicode, UTS 51 and chapter 23.2",
        ("ad\u200dmin", "\u200cstart", "\u0915\u200d\u200d\u0937", "\U0001f600\u200d!"),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            "\u0915\u094d\u200d\u0937",
            "\u0dc1\u0dca\u200d\u0dbb\u0dd3",
            "\U0001f468\u200d\U0001f469\u200d\U0001f467",
            "\U0001f3f3\ufe0f\u200d\U0001f308",
            "\U0001f9d1\U0001f3fd\u200d\U0001f4bb",
            "\u2764\ufe0f\u200d\U0001f525",
        ),
    ),
    Invisible(
        "variation-selector",
        r"\ufe00-\ufe0f\U000e0100-\U000e01ef",
        # One after a picture, a keycap's base, a symbol, or an ideograph; never two.
        rf"(?<=[{_PICTURES}0-9#*])[\ufe0e\ufe0f]|(?<=[\u2200-\u22ff\u2a00-\u2aff0])\ufe00"
        r"|(?<=[\u2100-\u214f\U0001d400-\U0001d7ff])[\ufe00\ufe01]"
        r"|(?<=[\u1000-\u109f\u2e80-\u9fff\ua840-\ua87f\uf900-\ufaff\uff01-\uff1f\U00020000-\U000323af])"
        r"[\ufe00-\ufe02\ufe0e\ufe0f\U000e0100-\U000e01ef]",
        "data smuggled in variation selectors; Unicode, UTS 37 and UTS 51",
        ("a\ufe0f", "\U0001f600\ufe0f\ufe0f", "\U0001f600\U000e0101", "x\U000e0110"),
        ("\u2764\ufe0f", "1\ufe0f\u20e3", "\u845b\U000e0100", "\u2611\ufe0e"),
    ),
    Invisible(
        "zero-width-space",
        r"\u200b",
        # Beside white space it splits no word: what a copied page leaves at a line's end.
        rf"(?<=[{_WITHOUT_SPACES}])\u200b(?=[{_WITHOUT_SPACES}])"
        r"|(?<![^\s])\u200b(?!\u200b)|(?<!\u200b)\u200b(?!\S)",
        "splitting of words to evade filters; Unicode, UAX 14 for Khmer and Thai",
        ("pass\u200bword", "a \u200b\u200b\u200b b"),
        ("\u1797\u17b6\u200b\u1781\u17d2\u1798\u17c2\u179a", "the end.\u200b", "\u200bthe start"),
    ),
    Invisible(
        "format-character",
        r"\u180e\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U0001d173-\U0001d17a"
        r"\U000e0080-\U000e00ff\U000e01f0-\U000e0fff\U0001bca0-\U0001bca3",
        r"(?<=[\u1820-\u18aa])\u180e",
        "Unicode, Default_Ignorable_Code_Point",
        ("a\u2060b", "x\ufeffy", "\u2063"),
    ),
    Invisible(
        "soft-hyphen",
        r"\u00ad",
        r"(?<=[^\W\d_])\u00ad(?=[^\W\d_])",
        "Unicode, UAX 14: where a word may be parted",
        ("\u00ad\u00ad\u00ad", "a \u00ad b", "pass\u00ad\u00adword"),
        ("Donau\u00addampf\u00adschiff", "soft\u00adhyphen"),
    ),
    Invisible(
        "blank-letter",
        r"\u115f\u1160\u17b4\u17b5\u3164\uffa0\u2800",
        r"(?<=[\u2801-\u28ff])\u2800|\u2800(?=[\u2801-\u28ff])|(?<=\u115f)\u1160",
        "letters without a shape",
        ("\u3164", "a\uffa0b", "\u2800"),
        ("\u2813\u2800\u2813",),
    ),
)

_FLAG: Final = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
# One class finds them much faster than the kinds one by one.
_UNSEEN: Final = re.compile("[" + "".join(kind.characters for kind in KINDS) + "]")
_ANY: Final = re.compile(
    "|".join(f"(?P<k{number}>[{kind.characters}])" for number, kind in enumerate(KINDS))
)
_KINDS: Final = {
    f"k{number}": (kind, re.compile(kind.valid or r"(?!)")) for number, kind in enumerate(KINDS)
}
_LETTER: Final = re.compile(f"[{_RIGHT_TO_LEFT}]")


class _Lines:
    """Says whether the line of a position holds right-to-left text; asked from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = -1
        self._right_to_left = False

    def right_to_left(self, at: int) -> bool:
        if at > self._end:
            begin = self._text.rfind("\n", 0, at) + 1
            end = self._text.find("\n", at)
            self._end = len(self._text) if end < 0 else end
            self._right_to_left = bool(_LETTER.search(self._text, begin, self._end))
        return self._right_to_left


def first(text: str) -> Iterator[tuple[int, str]]:
    """Yield the position and the kind's name of the first unseen character out of place."""
    if not _UNSEEN.search(text):
        return
    text = _FLAG.sub(lambda flag: "x" * len(flag[0]), text)
    lines = _Lines(text)
    for found in _UNSEEN.finditer(text):
        at = found.start()
        of = _ANY.match(text, at)
        kind, valid = _KINDS[str(of and of.lastgroup)]
        if kind.right_to_left and lines.right_to_left(at):
            continue
        if not valid.match(text, at):
            yield at, kind.name
            return
