from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from amux.materializer.agentside.errors import Failure
from amux.materializer.agentside.pages import KEPT, LIFETIME, PAGE, Pages
from tests.agentside.mcp_session import MODERN, Frame, McpSession, error_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.agentside.real_hub import RealHub
    from tests.agentside.scripted_hub import Documents, ScriptedHub
    from tests.agentside.side import Side

TOKEN = re.compile(r'"token": "([0-9a-f]{32})"')
# Text that needs escapes, characters of every length, and a backslash where a page may end.
LONG = "".join(f'{n}: "quoted" \\ tab\t é 记忆 🔑 \x01\\\\\n' for n in range(150))


def _token(content: list[dict[str, str]]) -> str | None:
    found = TOKEN.search(content[-1]["text"]) if len(content) == 2 else None
    return found.group(1) if found else None


def _follow(session: McpSession, result: Frame) -> tuple[list[str], list[str]]:
    """Return the texts of all pages and the tokens that led to them."""
    texts, tokens = [result["content"][0]["text"]], []
    while token := _token(result["content"]):
        tokens.append(token)
        result = session.call("amux.result_continue", token=token)
        assert result["isError"] is False
        texts.append(result["content"][0]["text"])
    return texts, tokens


def test_a_long_answer_comes_in_pages_of_six_kibibytes_that_join_to_the_hubs_json(
    session: McpSession, hub: ScriptedHub, documents: Documents
) -> None:
    session.initialize()
    documents.texts["a.md"] = LONG
    texts, tokens = _follow(session, session.call("get", path="a.md"))
    assert len(texts) > 1
    answer = json.loads("".join(texts))
    assert answer["text"] == LONG
    for line in session.lines:
        assert len(line) <= PAGE == 6144
        assert b'"structuredContent"' not in line  # sent once, since it is long
    assert hub.paths()[-len(tokens) :] == ["capability"] * len(tokens)


def test_pages_may_be_asked_for_again_and_in_any_order(
    session: McpSession, hub: ScriptedHub, documents: Documents
) -> None:
    documents.texts.update({"a.md": LONG, "b.md": LONG.replace("quoted", "cited")})
    a, b = (session.call("get", path=path) for path in ("a.md", "b.md"))
    b_texts, b_tokens = _follow(session, b)
    a_texts, a_tokens = _follow(session, a)
    pairs = [*zip(b_tokens, b_texts[1:], strict=True), *zip(a_tokens, a_texts[1:], strict=True)]
    for token, text in [*reversed(pairs), *pairs]:
        page = session.call("amux.result_continue", token=token)
        assert page["content"][0]["text"] == text
    assert json.loads("".join(a_texts))["text"] != json.loads("".join(b_texts))["text"]
    assert hub.asked


@pytest.mark.parametrize("meta", [{}, MODERN])
def test_no_frame_is_longer_than_the_page_whatever_the_answers_size(
    session: McpSession, hub: ScriptedHub, documents: Documents, meta: Frame
) -> None:
    session.initialize()
    for size in [*range(2500, 3100, 40), *range(5300, 6000, 40)]:
        documents.texts["a.md"] = text = "x" * size
        params = {"name": "amux.memory_get", "arguments": {"path": "a.md"}, "_meta": meta}
        result = session.ask("tools/call", params)["result"]
        assert len(session.lines[-1]) <= PAGE
        structured = result.get("structuredContent")
        assert structured is None or structured["text"] == text
        assert (structured is not None) or size > 2600
        assert (structured is None) or size < 2800
    assert hub.asked


@pytest.mark.parametrize("forged", ["", "0" * 32, "../../x", "Ключ", "a" * 10_000])
def test_a_forged_token_is_refused(
    session: McpSession, hub: ScriptedHub, documents: Documents, forged: str
) -> None:
    documents.texts["a.md"] = LONG
    session.call("get", path="a.md")
    error = error_in(session.call("amux.result_continue", token=forged))
    assert error["code"] == "invalid_request"
    assert "repeat the call" in error["message"]
    assert hub.paths()[-1] == "capability"


def test_a_token_of_another_process_is_refused(
    side: Side, session: McpSession, hub: ScriptedHub, documents: Documents
) -> None:
    documents.texts["a.md"] = LONG
    token = _token(session.call("get", path="a.md")["content"])
    with McpSession(side.spawn_mcp()) as other:
        assert error_in(other.call("amux.result_continue", token=token))["code"] == (
            "invalid_request"
        )
    assert session.call("amux.result_continue", token=token)["isError"] is False
    assert hub.asked


@pytest.fixture(name="bound")
def _bound(launch: Side) -> Iterator[McpSession]:
    """Serve a launch whose topic a.md takes several pages."""
    with McpSession(launch.spawn_mcp()) as session:
        session.initialize()
        text = LONG.replace("\x01", "")
        written = session.call("upsert", path="a.md", content=text, expected_revision="absent")
        assert written["isError"] is False
        yield session


def test_a_page_is_refused_after_the_launch_was_ended(bound: McpSession, real_hub: RealHub) -> None:
    token = _token(bound.call("get", path="a.md")["content"])
    assert bound.call("amux.result_continue", token=token)["isError"] is False
    real_hub.end_launch("launch-1")
    error = error_in(bound.call("amux.result_continue", token=token))
    assert error["code"] == "unauthenticated"


def test_a_page_is_refused_after_memory_was_switched_off_and_with_a_dead_hub(
    bound: McpSession, real_hub: RealHub
) -> None:
    token = _token(bound.call("get", path="a.md")["content"])
    real_hub.stop()
    assert error_in(bound.call("amux.result_continue", token=token))["code"] == "unavailable"
    real_hub.restart(memory_enabled="false")
    assert error_in(bound.call("amux.result_continue", token=token))["code"] == "memory_disabled"
    assert error_in(bound.call("get", path="a.md"))["code"] == "memory_disabled"
    real_hub.restart(memory_enabled="true")
    assert bound.call("amux.result_continue", token=token)["isError"] is False


def _first_token(pages: Pages, text: str) -> str:
    content: Any = pages.first(text)
    token = _token(content)
    assert token is not None
    return token


def test_a_token_lives_five_minutes() -> None:
    now = 1000.0
    pages = Pages(lambda: now)
    token = _first_token(pages, "x" * 10_000)
    now += LIFETIME
    assert LIFETIME == 300
    assert pages.following(token)
    now += 0.1
    with pytest.raises(Failure, match="expired"):
        pages.following(token)


def test_at_most_32_tokens_are_kept_and_the_oldest_goes_first() -> None:
    pages = Pages()
    tokens = [_first_token(pages, "x" * 10_000) for _ in range(KEPT + 2)]
    assert len(set(tokens)) == len(tokens)
    for token in tokens[:2]:
        with pytest.raises(Failure):
            pages.following(token)
    for token in tokens[2:]:
        assert pages.following(token)
    assert KEPT == 32


@pytest.mark.parametrize("unit", ["a", "é", "记", "🔑", "\\\\", "\\u0001", '\\"', "\\n"])
def test_no_page_is_cut_inside_a_character_or_an_escape(unit: str) -> None:
    for lead in range(6):
        pages = Pages()
        text = "y" * lead + unit * (15_000 // len(unit.encode()))
        content: Any = pages.first(text)
        joined = ""
        while True:
            piece = content[0]["text"]
            json.loads(f'"{piece}"')
            joined += piece
            token = _token(content)
            if token is None:
                break
            content = pages.following(token)
        assert joined == text
