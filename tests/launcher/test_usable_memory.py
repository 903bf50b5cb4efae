"""Memory that was bound and cannot be used: told before the start, refused where required."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amux.hub.config import set_setting
from amux.hub.local import ensure_running, stop_hub
from amux.launcher.errors import MemoryRequired, SessionDamaged
from amux.launcher.launch import launch
from amux.launcher.session.store import SessionStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.host import Host
    from amux.launcher.request import LaunchRequest


def test_a_binding_of_another_policy_is_told_and_refused_where_memory_is_required(
    scripted: Host, ask: Callable[..., LaunchRequest]
) -> None:
    with launch(ask(), scripted) as first:
        assert first.report.warnings == ()
    stop_hub(scripted.home)
    set_setting(scripted.home, "memory.isolation", "principal")
    ensure_running(scripted.home, scripted.environ)
    resume = ask(session=first.report.session)
    with pytest.raises(MemoryRequired, match="binding global is not valid under the Hub's policy"):
        launch(replace(resume, require_memory=True), scripted)
    with launch(resume, scripted) as again:
        assert again.report.binding == "global"
    assert any("start a new conversation" in text for text in again.report.warnings)
    with launch(ask(require_memory=True, principal=None), scripted) as fresh:
        assert fresh.report.warnings == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"protocol": "Something else.\n"}, "its protocol is not the text that was frozen"),
        ({"instructions": "Something else.\n"}, "its instructions are not the text that was"),
        ({"subagent_instructions": "Something else.\n"}, "its sub-agents' instructions are not"),
        ({"tool_list": "99"}, "it began with the tool list 99, which this amux does not have"),
    ],
)
def test_a_record_whose_frozen_text_was_changed_is_not_resumed(
    scripted: Host, ask: Callable[..., LaunchRequest], changes: dict[str, str], told: str
) -> None:
    with launch(ask(), scripted) as first:
        pass
    store = SessionStore(scripted.home)
    store.update(replace(store.load(first.report.session), **changes))  # type: ignore[arg-type]
    with pytest.raises(SessionDamaged, match=told):
        launch(ask(session=first.report.session), scripted)
