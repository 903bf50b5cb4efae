"""Codex's handshake against scripted answers: each refusal is clear, and nothing is assumed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from amux.providers.base import (
    AgentRequest,
    Confirmed,
    Evidence,
    Facts,
    Grant,
    LaunchPlan,
    Mode,
    NativeResume,
    Tools,
)
from amux.providers.codex import CodexProvider, flags, threads
from amux.providers.errors import (
    BadArguments,
    NotConfirmed,
    RequestRefused,
    Silence,
    UnsupportedVersion,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amux.providers.base import JsonObject

CODEX = CodexProvider()
HOME = "/home/ann/.codex"
TEXT_NAME = "subagent_developer_instructions"
OFF = {
    "features": {"memories": False},
    "memories": {"use_memories": False, "generate_memories": False},
}


@dataclass
class ScriptedChannel:
    """Answers by method, the last of several for good; an exception as an answer is raised."""

    answers: dict[str, Any]
    asked: list[tuple[str, JsonObject]] = field(default_factory=list)
    messages: list[JsonObject] = field(default_factory=list)

    def request(self, method: str, params: JsonObject, *, deadline: float) -> JsonObject:
        assert deadline > 0
        self.asked.append((method, params))
        answer = self.answers[method]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, dict)
        return answer

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        self.asked.append((method, params or {}))

    def send(self, message: JsonObject) -> None:
        raise AssertionError(message)

    def receive(self, *, deadline: float) -> JsonObject:
        if not self.messages:
            raise Silence(f"nothing within {deadline}")
        return self.messages.pop(0)

    def put_back(self, messages: Sequence[JsonObject]) -> None:
        self.messages[:0] = messages

    def parameters(self, method: str) -> JsonObject:
        return next(params for name, params in self.asked if name == method)


def refused(text: str, number: int = -32600) -> RequestRefused:
    return RequestRefused("method", number=number, answer=text)


def channel(**changes: object) -> ScriptedChannel:
    answers: dict[str, Any] = {
        "initialize": {"codexHome": HOME},
        "config/read": {"config": OFF, "origins": {}, "layers": []},
        "experimentalFeature/list": {"data": [{"name": "memories", "enabled": False}]},
        "thread/start": {"thread": {"id": "t1"}},
        "thread/resume": {"thread": {"id": "t1"}},
        "thread/fork": {"thread": {"id": "t2"}},
        "thread/memoryMode/set": {},
        "hooks/list": {"data": []},
        "thread/loaded/list": {"data": ["t1", "t9"]},
        "thread/read": {"thread": {"parentThreadId": None}},
    }
    named = {name.replace("__", "/"): value for name, value in changes.items()}
    return ScriptedChannel({**answers, **named})


def request(
    resume: NativeResume | None = None, mode: Mode = Mode.STREAM, version: str = "0.171.0"
) -> AgentRequest:
    return AgentRequest(
        command=("/opt/codex",),
        version=version,
        arguments=(),
        mode=mode,
        cwd="/w",
        home="/home/ann/",
        environment={"HOME": "/home/ann", "CODEX_HOME": ""},
        resume=resume,
    )


def grant(instructions: str | None = None, tools: Tools = Tools.NONE) -> Grant:
    return Grant(
        binding="global",
        protocol="PROTOCOL",
        tools=tools,
        cli=("/run/amux",),
        connection="/run/c.json",
        config="/run",
        work="/run/work",
        instructions=instructions,
    )


def control(scripted: ScriptedChannel, given: Grant | None = None, **changes: Any) -> Confirmed:  # noqa: ANN401  # any field
    plan = LaunchPlan(argv=("codex",))
    return CODEX.handshake(scripted, request(**changes), given or grant(), plan)


def test_the_order_is_initialize_config_thread_and_memory_mode() -> None:
    scripted = channel()
    control(scripted)
    assert [name for name, _ in scripted.asked] == [
        "initialize",
        "initialized",
        "config/read",
        "experimentalFeature/list",
        "thread/start",
        "thread/memoryMode/set",
        "hooks/list",
    ]
    assert scripted.parameters("initialize")["capabilities"] == {"experimentalApi": True}
    assert scripted.parameters("config/read")["cwd"] == "/w"
    assert scripted.parameters("thread/memoryMode/set") == {"threadId": "t1", "mode": "disabled"}


@pytest.mark.parametrize("value", [True, None, "false", 0])
@pytest.mark.parametrize(
    "name", ["features.memories", "memories.use_memories", "memories.generate_memories"]
)
def test_only_a_literal_false_counts_and_the_value_is_named(name: str, value: object) -> None:
    table, key = name.split(".")
    config = {**OFF, table: {**OFF[table], key: value}}
    origin = {name: {"name": {"type": "user", "file": "/x/config.toml"}}}
    scripted = channel(config__read={"config": config, "origins": origin, "layers": []})
    with pytest.raises(NotConfirmed, match=rf"{name} is .*user /x/config.toml"):
        control(scripted)
    assert "thread/start" not in [method for method, _ in scripted.asked]


@pytest.mark.parametrize(
    "listed",
    [
        {"data": [{"name": "memories", "enabled": True}]},
        {"data": [{"name": "memories"}]},
        {"data": [{"name": "apps", "enabled": False}]},
        {"data": None},
        refused("unknown variant `experimentalFeature/list`"),
    ],
)
def test_a_feature_that_is_in_effect_fails_the_launch_whatever_the_configuration_says(
    listed: object,
) -> None:
    scripted = channel(experimentalFeature__list=listed)
    with pytest.raises(NotConfirmed, match=r"memories|list its features"):
        control(scripted)
    assert "thread/start" not in [method for method, _ in scripted.asked]


def test_an_answer_without_a_configuration_confirms_nothing() -> None:
    with pytest.raises(NotConfirmed):
        control(channel(config__read={"result": None}))


def test_another_home_than_the_planned_one_fails_before_anything_is_read() -> None:
    scripted = channel(initialize={"codexHome": "/root/.codex"})
    with pytest.raises(NotConfirmed, match=r"/home/ann/\.codex.*/root/\.codex"):
        control(scripted)
    assert len(scripted.asked) <= 2


def test_a_version_without_memory_mode_is_named() -> None:
    answer = refused("Invalid request: unknown variant `thread/memoryMode/set`, expected one of")
    with pytest.raises(UnsupportedVersion, match=r"0\.171\.0"):
        control(channel(thread__memoryMode__set=answer))


def test_a_refused_memory_mode_fails_with_codex_s_own_words() -> None:
    answer = refused("ephemeral thread does not support metadata updates")
    with pytest.raises(NotConfirmed, match="ephemeral thread does not support"):
        control(channel(thread__memoryMode__set=answer))


def test_an_unreadable_configuration_fails_with_codex_s_own_words() -> None:
    answer = refused("/x/config.toml:3: expected `]`", -32603)
    with pytest.raises(NotConfirmed, match=r"config\.toml:3"):
        control(channel(config__read=answer))


def test_the_configured_instructions_come_first_and_the_protocol_is_there_once() -> None:
    for configured, merged in [
        (None, "PROTOCOL"),
        ("Be kind.\n", "Be kind.\n\nPROTOCOL"),
        ("Be kind.\n\nPROTOCOL\n\nEnd.", "Be kind.\n\nPROTOCOL\n\nEnd."),
    ]:
        config = {**OFF, "developer_instructions": configured}
        scripted = channel(config__read={"config": config})
        assert control(scripted).instructions == merged
        assert scripted.parameters("thread/start")["developerInstructions"] == merged


@pytest.mark.parametrize("fork", [False, True])
def test_a_resume_and_a_fork_send_the_frozen_text_whatever_is_configured_now(*, fork: bool) -> None:
    config = {**OFF, "developer_instructions": "new text"}
    scripted = channel(config__read={"config": config})
    resume = NativeResume(native_id="t1", fork=fork)
    confirmed = control(scripted, grant("FROZEN"), resume=resume)
    sent = scripted.parameters("thread/fork" if fork else "thread/resume")
    assert sent["developerInstructions"] == confirmed.instructions == "FROZEN"
    assert sent["threadId"] == "t1"
    mode = scripted.parameters("thread/memoryMode/set")
    assert mode == {"threadId": "t2" if fork else "t1", "mode": "disabled"}


class OlderChannel(ScriptedChannel):
    """Opens no thread whose configuration has a key that it does not know."""

    def request(self, method: str, params: JsonObject, *, deadline: float) -> JsonObject:
        answer = super().request(method, params, deadline=deadline)
        if flags.SUBAGENT_TEXT in params.get("config", {}):
            raise refused("invalid configuration: no variant\nin `features.multi_agent_v2`")
        return answer


def test_an_older_codex_resumes_without_the_text_of_sub_agents_that_it_does_not_know() -> None:
    frozen = replace(grant("FROZEN"), subagent_instructions="OWN\n\nPROTOCOL")
    resume = NativeResume(native_id="t1")
    newer = control(channel(), frozen, resume=resume)
    assert newer.subagent_instructions == "OWN\n\nPROTOCOL"
    scripted = OlderChannel(channel().answers)
    older = control(scripted, frozen, resume=resume)
    assert older.instructions == "FROZEN"
    assert older.subagent_instructions is None
    assert not any("sub-agents" in one.control for one in older.evidence)
    opened = [params for method, params in scripted.asked if method == "thread/resume"]
    assert [flags.SUBAGENT_TEXT in params.get("config", {}) for params in opened] == [True, False]
    with pytest.raises(RequestRefused, match="no rollout"):
        control(channel(thread__resume=refused("no rollout found")), frozen, resume=resume)


def test_without_a_grant_nothing_of_codex_is_asked_or_changed() -> None:
    scripted = channel()
    plan = CODEX.plan(request(), None, Facts())
    assert isinstance(plan, LaunchPlan)
    confirmed = CODEX.handshake(scripted, request(), None, plan)
    assert confirmed.native_id == "t1"
    assert scripted.parameters("thread/start") == {"cwd": "/w"}
    assert [name for name, _ in scripted.asked] == ["initialize", "initialized", "thread/start"]


def test_tools_that_did_not_load_are_named() -> None:
    loaded: JsonObject = {name: {} for name in flags.TOOL_NAMES[:4]}
    status = {"data": [{"name": "other", "tools": {}}, {"name": "amux", "tools": loaded}]}
    entry = flags.server_entry(grant())
    config = {**OFF, "mcp_servers": {"amux": entry}}
    scripted = channel(config__read={"config": config}, mcpServerStatus__list=status)
    confirmed = control(scripted, grant(tools=Tools.MCP))
    assert len(confirmed.warnings) == 1
    assert "amux.result_continue" in confirmed.warnings[0]


def test_a_memory_server_that_codex_does_not_know_or_changed_is_reported() -> None:
    status = {"data": [{"name": "amux", "tools": {name: {} for name in flags.TOOL_NAMES}}]}
    other = {**flags.server_entry(grant()), "command": "/bin/other", "env": {}}
    for servers, words in [({}, "does not know"), ({"amux": other}, "another command, env")]:
        config = {**OFF, "mcp_servers": servers}
        scripted = channel(config__read={"config": config}, mcpServerStatus__list=status)
        confirmed = control(scripted, grant(tools=Tools.MCP))
        assert len(confirmed.warnings) == 1
        assert words in confirmed.warnings[0]


def status(name: str, value: str, thread: str = "t1") -> JsonObject:
    params = {"name": name, "status": value, "threadId": thread}
    return {"method": "mcpServer/startupStatus/updated", "params": params}


@pytest.mark.parametrize(
    ("told", "observed", "warned"),
    [
        ([status("amux", "starting"), status("amux", "ready")], "server ready", False),
        ([status("slow", "ready"), status("amux", "ready", "t0")], "none", True),
        ([status("amux", "failed")], "server failed", True),
    ],
)
def test_an_older_version_with_other_servers_is_heard_instead_of_starting_them_all_again(
    told: list[JsonObject], observed: str, *, warned: bool
) -> None:
    servers = {"amux": flags.server_entry(grant()), "slow": {"command": "/bin/sleep"}}
    scripted = channel(config__read={"config": {**OFF, "mcp_servers": servers}})
    scripted.messages = list(told)
    confirmed = control(scripted, grant(tools=Tools.MCP), version="0.153.4")
    assert "mcpServerStatus/list" not in [name for name, _ in scripted.asked]
    seen = {one.control: one.observed for one in confirmed.evidence}
    assert seen["memory tools"] == observed
    assert bool(confirmed.warnings) is warned
    assert scripted.messages == told


def screen_plan() -> LaunchPlan:
    return LaunchPlan(argv=("codex",), server=("codex", "app-server"), instructions="MERGED")


def test_a_screen_without_the_merged_text_is_never_shown() -> None:
    config = {**OFF, "developer_instructions": "a managed text"}
    asked = request(mode=Mode.TERMINAL)
    with pytest.raises(NotConfirmed, match="memory protocol"):
        CODEX.handshake(channel(config__read={"config": config}), asked, grant(), screen_plan())
    config = {**OFF, "developer_instructions": "MERGED"}
    scripted = channel(config__read={"config": config})
    confirmed = CODEX.handshake(scripted, asked, grant(), screen_plan())
    assert confirmed.native_id is None
    assert "thread/start" not in [method for method, _ in scripted.asked]


def test_a_screen_whose_sub_agents_lack_the_merged_text_is_never_shown() -> None:
    plan = replace(screen_plan(), subagent_instructions="OWN\n\nPROTOCOL")
    for text, reached in (("OWN\n\nPROTOCOL", True), ("another", False)):
        features = {**OFF["features"], "multi_agent_v2": {"subagent_developer_instructions": text}}
        config = {**OFF, "features": features, "developer_instructions": "MERGED"}
        scripted = channel(config__read={"config": config, "layers": []})
        asked = request(mode=Mode.TERMINAL)
        if reached:
            confirmed = CODEX.handshake(scripted, asked, grant(), plan)
            assert confirmed.evidence[-1].observed == "appended"
        else:
            with pytest.raises(NotConfirmed, match="sub-agents of Codex's screen"):
                CODEX.handshake(scripted, asked, grant(), plan)


def test_a_folder_that_is_not_trusted_so_far_takes_the_protocol_from_no_sub_agent() -> None:
    table = {"multi_agent_v2": {"subagent_developer_instructions": "theirs"}}
    project = {
        "name": {"type": "project", "dotCodexFolder": "/w/.codex"},
        "config": {"features": table},
        "disabledReason": "not trusted",
    }
    answer = {"config": {**OFF, "developer_instructions": "mine"}, "layers": [project]}
    confirmed = CODEX.confirm_preflight(channel(config__read=answer), request(), grant())
    assert confirmed.subagent_instructions == confirmed.instructions == "mine\n\nPROTOCOL"
    (named,) = [text for text in confirmed.warnings if "not trusted" in text]
    assert named.startswith(f"/w/.codex is not trusted: its {flags.SUBAGENT_TEXT} are left out")
    without = {**answer, "layers": []}
    confirmed = CODEX.confirm_preflight(channel(config__read=without), request(), grant())
    assert confirmed.subagent_instructions is None


def test_instructions_pinned_above_every_flag_are_refused_where_flags_carry_ours() -> None:
    managed = {
        "name": {"type": "legacyManagedConfigTomlFromFile", "file": "/etc/codex/m.toml"},
        "config": {"developer_instructions": "pinned"},
    }
    own = {"name": {"type": "sessionFlags"}, "config": {}}
    user = {"name": {"type": "user", "file": "/u"}, "config": {"developer_instructions": "mine"}}
    answer = {"config": {**OFF, "developer_instructions": "mine"}, "layers": [own, user]}
    confirmed = CODEX.confirm_preflight(channel(config__read=answer), request(), grant())
    assert confirmed.instructions == "mine\n\nPROTOCOL"
    pinned = {**answer, "layers": [managed, own, user]}
    with pytest.raises(BadArguments, match=r"/etc/codex/m\.toml"):
        CODEX.confirm_preflight(channel(config__read=pinned), request(), grant())


def started(thread: JsonObject) -> JsonObject:
    return {"method": "thread/started", "params": {"thread": thread}}


BEGAN = 1_796_000_000.0
OLD = "01a12000-0000-7000-8000-000000000000"
NEW = "01a22e6d-6b61-7182-8110-f31198a5e040"
"""Threads from before and after BEGAN, by the time in their ids."""


def on_screen(**changes: Any) -> AgentRequest:  # noqa: ANN401  # any field
    return replace(request(mode=Mode.TERMINAL), began=BEGAN, **changes)


def test_each_thread_of_a_screen_is_settled_once_and_others_messages_are_left_alone() -> None:
    asked = on_screen()
    scripted = channel()
    none = frozenset[str]()
    found = CODEX.on_server_message(scripted, started({"id": "t5"}), asked, grant(), none)
    mode = Evidence(control="memoryMode", observed="disabled", source="thread/memoryMode/set")
    assert found == Confirmed(evidence=(mode,), native_id="t5")
    assert scripted.asked == [("thread/memoryMode/set", {"threadId": "t5", "mode": "disabled"})]
    known = frozenset({"t5"})
    assert CODEX.on_server_message(scripted, started({"id": "t5"}), asked, grant(), known) is None
    assert (
        CODEX.on_server_message(scripted, {"method": "turn/started"}, asked, grant(), none) is None
    )
    assert CODEX.on_server_message(scripted, None, asked, grant(), frozenset({"t1", "t9"})) is None


@pytest.mark.parametrize("thread", [{"id": OLD}, {"id": "t9", "createdAt": int(BEGAN) - 60}])
def test_an_older_thread_that_is_resumed_on_a_screen_is_named_and_its_row_left_as_it_is(
    thread: JsonObject,
) -> None:
    loaded = {"data": [thread["id"]]}
    scripted = channel(thread__loaded__list=loaded, thread__read={"thread": thread})
    found = CODEX.on_server_message(scripted, None, on_screen(), grant(), frozenset())
    assert found is not None
    assert (found.native_id, found.foreign, found.evidence) == (thread["id"], True, ())
    assert f"{thread['id']} was resumed on the screen" in found.warnings[0]
    assert "thread/memoryMode/set" not in [method for method, _ in scripted.asked]
    for own in (
        on_screen(conversations=frozenset({thread["id"]})),
        on_screen(resume=NativeResume(native_id=thread["id"])),
    ):
        settled = CODEX.on_server_message(scripted, None, own, grant(), frozenset())
        assert settled is not None
        assert (settled.foreign, settled.warnings) == (False, ())
        assert settled.evidence[0].control == "memoryMode"


@pytest.mark.parametrize("thread", [{"id": NEW}, {"id": "t9", "createdAt": int(BEGAN)}])
def test_a_new_thread_that_is_listed_before_a_message_tells_of_it_is_not_called_resumed(
    thread: JsonObject,
) -> None:
    loaded = {"data": [thread["id"]]}
    scripted = channel(thread__loaded__list=loaded, thread__read={"thread": thread})
    found = CODEX.on_server_message(scripted, None, on_screen(), grant(), frozenset())
    assert found is not None
    assert (found.foreign, found.warnings) == (False, ())
    assert found.evidence[0].control == "memoryMode"


def test_a_fork_of_anothers_conversation_is_settled_and_named() -> None:
    message = started({"id": NEW, "forkedFromId": OLD})
    for asked, foreign in (
        (on_screen(), True),
        (on_screen(resume=NativeResume(native_id=OLD, fork=True)), False),
        (on_screen(conversations=frozenset({OLD})), False),
    ):
        found = CODEX.on_server_message(channel(), message, asked, grant(), frozenset())
        assert found is not None
        assert found.foreign is foreign
        assert len(found.warnings) == foreign
        assert found.evidence[0].control == "memoryMode"


@pytest.mark.parametrize("method", ["thread/resume", "thread/fork"])
def test_a_supervisor_goes_on_only_with_threads_of_the_session_and_their_sub_agents(
    method: str,
) -> None:
    known = frozenset({"t1"})
    scripted = channel()
    CODEX.check_request(scripted, method, {"threadId": "t1"}, known)
    CODEX.check_request(scripted, "thread/start", {}, known)
    CODEX.check_request(scripted, "turn/start", {"threadId": "t9"}, known)
    assert scripted.asked == []
    child = channel(thread__read={"thread": {"parentThreadId": "t1"}})
    CODEX.check_request(child, method, {"threadId": "t2"}, known)
    for answer in ({"thread": {"parentThreadId": None}}, refused("no such thread")):
        with pytest.raises(BadArguments, match="t9 did not begin in this session"):
            CODEX.check_request(channel(thread__read=answer), method, {"threadId": "t9"}, known)
    others: list[JsonObject] = [{"path": "/r.jsonl"}, {"history": [{}]}]
    for given in others:
        with pytest.raises(BadArguments, match="that amux cannot know"):
            CODEX.check_request(scripted, method, {"threadId": "t1", **given}, known)


@pytest.mark.parametrize("method", ["thread/start", "thread/resume", "thread/fork"])
def test_a_text_for_sub_agents_in_the_folder_of_one_more_thread_refuses_it(method: str) -> None:
    known, text = frozenset({"t1"}), {"features": {"multi_agent_v2": {TEXT_NAME: ""}}}
    params: JsonObject = {"threadId": "t1", "cwd": "/there", "config": {}}
    dormant = {"name": {"dotCodexFolder": "/there/.codex"}, "config": text}
    for answer in (
        {"config": text},
        {"config": {}, "layers": [{**dormant, "disabledReason": "not trusted"}]},
    ):
        scripted = channel(config__read=answer)
        with pytest.raises(BadArguments, match=f"in /there sets .*{TEXT_NAME}"):
            CODEX.check_request(scripted, method, params, known)
        assert scripted.parameters("config/read")["cwd"] == "/there"
        sent = {**params, "config": {flags.SUBAGENT_TEXT: "merged"}}
        CODEX.check_request(scripted, method, sent, known)
    CODEX.check_request(channel(config__read={"config": {}}), method, params, known)
    CODEX.check_request(channel(config__read=refused("broken file")), method, params, known)
    managed = {"name": {"type": "legacyManagedConfigTomlFromFile"}, "config": text}
    above = channel(config__read={"config": text, "layers": [managed]})
    CODEX.check_request(above, method, params, known)


def test_a_side_conversation_is_let_be_and_a_refusal_is_not() -> None:
    asked = request(mode=Mode.TERMINAL)
    side = refused("ephemeral thread does not support metadata updates")
    none = frozenset[str]()
    found = CODEX.on_server_message(
        channel(thread__memoryMode__set=side), started({"id": "t5"}), asked, grant(), none
    )
    assert found == Confirmed(native_id="t5")
    with pytest.raises(NotConfirmed):
        CODEX.on_server_message(
            channel(thread__memoryMode__set=refused("no")),
            started({"id": "t5"}),
            asked,
            grant(),
            none,
        )


def test_a_supervisors_further_threads_are_opened_under_the_same_controls() -> None:
    sent = threads.bind_request("thread/start", {"config": {"model": "m"}, "cwd": "/x"}, "FROZEN")
    assert sent == {
        "config": {"model": "m", **flags.MEMORY_OFF},
        "cwd": "/x",
        "developerInstructions": "FROZEN",
    }
    for method in ("thread/resume", "thread/fork"):
        with pytest.raises(BadArguments, match=r"features\.memories"):
            threads.bind_request(method, {"config": {"features": {"memories": True}}}, "FROZEN")
    with pytest.raises(BadArguments):
        threads.bind_request(
            "thread/memoryMode/set", {"threadId": "t", "mode": "enabled"}, "FROZEN"
        )
    turn = {"threadId": "t", "input": []}
    assert threads.bind_request("turn/start", turn, "FROZEN") is turn


@pytest.mark.parametrize(
    ("version", "cwd", "warned"),
    [("0.142.0", "/there", True), ("0.142.0", "/w", False), ("0.149.0", "/there", False)],
)
def test_a_thread_in_a_folder_whose_roles_nobody_looked_at_is_warned_of(
    version: str, cwd: str, *, warned: bool
) -> None:
    result: JsonObject = {"thread": {"id": "t9"}, "cwd": cwd}
    opened = CODEX.on_response(channel(), "thread/start", result, request(version=version))
    assert opened is not None
    assert [f"the agent roles of {cwd} were not read" in one for one in opened.warnings] == (
        [True] if warned else []
    )


def test_a_version_before_memory_mode_tells_no_home_and_starts_without_memory_all_the_same() -> (
    None
):
    silent = channel(initialize={"userAgent": "codex"})
    plan = LaunchPlan(argv=("codex",))
    opened = CODEX.handshake(silent, request(version="0.116.0"), None, plan)
    assert (opened.native_id, opened.evidence) == ("t1", ())
    with pytest.raises(NotConfirmed, match="codexHome = null"):
        CODEX.handshake(silent, request(version="0.171.0"), None, plan)


DORMANT = {
    "name": {"type": "project", "dotCodexFolder": "/w/.codex"},
    "config": {"developer_instructions": "Be brief."},
    "disabledReason": "not trusted",
}
UNTRUSTED = {"config": OFF, "origins": {}, "layers": [DORMANT]}
ON = {**OFF, "memories": {"use_memories": True, "generate_memories": False}}
FEATURE_OFF = {"data": [{"name": "memories", "enabled": False}]}
FEATURE_ON = {"data": [{"name": "memories", "enabled": True}]}


@pytest.mark.parametrize(
    ("config", "features", "words"),
    [
        (ON, FEATURE_OFF, "memories.use_memories is true"),
        (OFF, FEATURE_ON, "its feature `memories` is in effect"),
    ],
)
def test_native_memory_is_asked_for_again_once_codex_has_trusted_the_folder(
    config: JsonObject, features: JsonObject, words: str
) -> None:
    trusted = {"config": config, "origins": {}, "layers": []}
    scripted = channel(
        config__read=[UNTRUSTED, trusted], experimentalFeature__list=[FEATURE_OFF, features]
    )
    with pytest.raises(NotConfirmed, match=words):
        control(scripted)
    assert [name for name, _ in scripted.asked][-3:] == [
        "thread/start",
        "config/read",
        "experimentalFeature/list",
    ]


def test_a_folder_that_codex_trusts_by_itself_has_its_own_text_in_a_second_thread() -> None:
    text = {**OFF, "developer_instructions": "Be brief."}
    trusted = {"config": text, "origins": {}, "layers": []}
    scripted = channel(
        config__read=[UNTRUSTED, trusted],
        thread__start=[{"thread": {"id": "t1"}}, {"thread": {"id": "t2"}}],
    )
    confirmed = control(scripted)
    sent = [params for name, params in scripted.asked if name == "thread/start"]
    assert [one["developerInstructions"] for one in sent] == ["PROTOCOL", "Be brief.\n\nPROTOCOL"]
    assert (confirmed.native_id, confirmed.instructions) == ("t2", "Be brief.\n\nPROTOCOL")
    assert scripted.parameters("thread/memoryMode/set")["threadId"] == "t2"


def test_a_folder_that_stays_untrusted_has_one_thread() -> None:
    scripted = channel(config__read=UNTRUSTED)
    assert control(scripted).native_id == "t1"
    asked = [name for name, _ in scripted.asked]
    assert (asked.count("thread/start"), asked.count("config/read")) == (1, 2)


def test_a_resumed_thread_keeps_its_text_whatever_codex_trusts_meanwhile() -> None:
    scripted = channel(config__read=UNTRUSTED)
    control(scripted, grant(instructions="frozen"), resume=NativeResume(native_id="t1"))
    assert [name for name, _ in scripted.asked].count("config/read") == 1
