"""Who may do what: every actor, policy, binding and verb, through real HTTP.

Columns are the binding sent: none at all, the right one, a text that no Hub gives, the
other policy's, and another Principal's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from fixtures.hubs import HubHome, Reply, new_home

if TYPE_CHECKING:
    from collections.abc import Iterator

ABSENT_REVISION: Final = {"expected_revision": "absent"}
VERBS: Final = ("search", "get", "upsert", "forget")
BINDINGS: Final = ("none", "right", "nonsense", "policy", "other")

# One cell is the answer to each of search, get, upsert and forget. ok and the error codes:
OK, UNA, FOR = "ok", "unauthenticated", "forbidden"
MIS, OFF = "binding_mismatch", "memory_disabled"

DATA: Final = {
    # policy      memory  actor           none  right nons. policy other
    ("none", "on", "nobody"): (UNA, UNA, UNA, UNA, UNA),
    ("none", "on", "forged"): (UNA, UNA, UNA, UNA, UNA),
    ("none", "on", "user"): (OK, OK, MIS, MIS, MIS),
    ("none", "on", "stray user"): (OK, OK, MIS, MIS, MIS),
    ("none", "on", "runtime"): (FOR, FOR, FOR, FOR, FOR),
    ("none", "on", "admin"): (FOR, FOR, FOR, FOR, FOR),
    ("none", "on", "agent"): (MIS, OK, MIS, MIS, MIS),
    ("none", "on", "stray agent"): (MIS, OK, MIS, MIS, MIS),
    ("none", "on", "old agent"): (MIS, MIS, MIS, MIS, MIS),
    ("none", "on", "ended agent"): (UNA, UNA, UNA, UNA, UNA),
    ("none", "off", "nobody"): (UNA, UNA, UNA, UNA, UNA),
    ("none", "off", "forged"): (UNA, UNA, UNA, UNA, UNA),
    ("none", "off", "user"): (OFF, OFF, MIS, MIS, MIS),
    ("none", "off", "stray user"): (OFF, OFF, MIS, MIS, MIS),
    ("none", "off", "runtime"): (FOR, FOR, FOR, FOR, FOR),
    ("none", "off", "admin"): (FOR, FOR, FOR, FOR, FOR),
    ("none", "off", "agent"): (MIS, OFF, MIS, MIS, MIS),
    ("none", "off", "stray agent"): (MIS, OFF, MIS, MIS, MIS),
    ("none", "off", "old agent"): (MIS, MIS, MIS, MIS, MIS),
    ("none", "off", "ended agent"): (UNA, UNA, UNA, UNA, UNA),
    ("principal", "on", "nobody"): (UNA, UNA, UNA, UNA, UNA),
    ("principal", "on", "forged"): (UNA, UNA, UNA, UNA, UNA),
    ("principal", "on", "user"): (OK, OK, MIS, MIS, MIS),
    ("principal", "on", "stray user"): (FOR, FOR, MIS, MIS, MIS),
    ("principal", "on", "runtime"): (FOR, FOR, FOR, FOR, FOR),
    ("principal", "on", "admin"): (FOR, FOR, FOR, FOR, FOR),
    ("principal", "on", "agent"): (MIS, OK, MIS, MIS, MIS),
    ("principal", "on", "stray agent"): (MIS, FOR, MIS, MIS, MIS),
    ("principal", "on", "old agent"): (MIS, MIS, MIS, MIS, MIS),
    ("principal", "on", "ended agent"): (UNA, UNA, UNA, UNA, UNA),
    ("principal", "off", "nobody"): (UNA, UNA, UNA, UNA, UNA),
    ("principal", "off", "forged"): (UNA, UNA, UNA, UNA, UNA),
    ("principal", "off", "user"): (OFF, OFF, MIS, MIS, MIS),
    ("principal", "off", "stray user"): (FOR, FOR, MIS, MIS, MIS),
    ("principal", "off", "runtime"): (FOR, FOR, FOR, FOR, FOR),
    ("principal", "off", "admin"): (FOR, FOR, FOR, FOR, FOR),
    ("principal", "off", "agent"): (MIS, OFF, MIS, MIS, MIS),
    ("principal", "off", "stray agent"): (MIS, FOR, MIS, MIS, MIS),
    ("principal", "off", "old agent"): (MIS, MIS, MIS, MIS, MIS),
    ("principal", "off", "ended agent"): (UNA, UNA, UNA, UNA, UNA),
}

# The calls besides the four verbs, with the right binding where there is one:
OTHER_CALLS: Final = {
    # actor          health capab. open renew end  read  write settings
    "nobody": (OK, UNA, UNA, UNA, UNA, UNA, UNA),
    "forged": (UNA, UNA, UNA, UNA, UNA, UNA, UNA),
    "user": (OK, OK, FOR, FOR, FOR, FOR, FOR),
    "runtime": (OK, OK, OK, OK, OK, FOR, FOR),
    "admin": (OK, FOR, FOR, FOR, FOR, OK, OK),
    "agent": (OK, OK, FOR, FOR, FOR, FOR, FOR),
    "old agent": (OK, MIS, FOR, FOR, FOR, FOR, FOR),
    "ended agent": (UNA, UNA, UNA, UNA, UNA, UNA, UNA),
}

# A launch for ann, by what the runtime may do and the binding that it stored before:
LAUNCHES: Final = {
    # policy      memory  runtime     fresh  global own   other's malformed
    ("none", "on", "any"): (OK, OK, OK, MIS, "invalid_request"),
    ("none", "on", "ann only"): (OK, OK, OK, MIS, "invalid_request"),
    ("none", "on", "bob only"): (FOR, FOR, FOR, FOR, "invalid_request"),
    ("none", "off", "any"): (OFF, OK, OK, MIS, "invalid_request"),
    ("none", "off", "ann only"): (OFF, OK, OK, MIS, "invalid_request"),
    ("none", "off", "bob only"): (FOR, FOR, FOR, FOR, "invalid_request"),
    ("principal", "on", "any"): (OK, OK, OK, MIS, "invalid_request"),
    ("principal", "on", "ann only"): (OK, OK, OK, MIS, "invalid_request"),
    ("principal", "on", "bob only"): (FOR, FOR, FOR, FOR, "invalid_request"),
    ("principal", "off", "any"): (OFF, OK, OK, MIS, "invalid_request"),
    ("principal", "off", "ann only"): (OFF, OK, OK, MIS, "invalid_request"),
    ("principal", "off", "bob only"): (FOR, FOR, FOR, FOR, "invalid_request"),
}

COMBINATIONS: Final = [
    (policy, memory) for policy in ("none", "principal") for memory in ("on", "off")
]


@dataclass(frozen=True, slots=True)
class Cast:
    """A Hub under one policy, a token for each actor, and its right binding."""

    hub: HubHome
    policy: str
    memory: str
    tokens: dict[str, str | None]
    right: dict[str, str]

    def binding(self, actor: str, column: str) -> str | None:
        return {
            "none": None,
            "right": self.right[actor],
            "nonsense": "everything",
            "policy": "principal:ann" if self.right[actor] == "global" else "global",
            "other": "principal:bob",
        }[column]


@pytest.fixture(
    scope="module", params=COMBINATIONS, ids=[f"{policy}-{on}" for policy, on in COMBINATIONS]
)
def cast(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cast]:
    policy, memory = request.param
    other = "principal" if policy == "none" else "none"
    hub = new_home(tmp_path_factory.mktemp("matrix") / "h")
    identity = hub.registry
    for name in ("ann", "bob", "stray"):
        identity.principals.add(name)
    issue = identity.credentials.issue
    tokens: dict[str, str | None] = {
        "nobody": None,
        "user": issue("user", principal="ann").text,
        "stray user": issue("user", principal="stray").text,
        "runtime": hub.token("runtime"),
        "admin": hub.token("admin"),
        "ann only": issue("runtime", allowed=("ann",)).text,
        "bob only": issue("runtime", allowed=("bob",)).text,
        "any": issue("runtime", allowed=None).text,
    }
    good = tokens["user"]
    assert good is not None
    tokens["forged"] = good[:-4] + ("aaaa" if not good.endswith("aaaa") else "bbbb")
    hub.set("memory.enabled", "true")
    with hub.client("runtime") as runtime:
        try:
            hub.set("memory.isolation", other)
            hub.start()
            tokens["old agent"] = runtime.open_launch("old", principal="ann").token
            hub.stop()
            hub.set("memory.isolation", policy)
            hub.start()
            tokens["agent"] = runtime.open_launch("new", principal="ann").token
            tokens["stray agent"] = runtime.open_launch("stray", principal="stray").token
            tokens["ended agent"] = runtime.open_launch("ended", principal="ann").token
            runtime.end_launch("ended")
            hub.stop()
            _remove_principal(hub, "stray")
            hub.set("memory.enabled", "true" if memory == "on" else "false")
            hub.start()
            right = dict.fromkeys(tokens, "global" if policy == "none" else "principal:ann")
            right["old agent"] = "principal:ann" if policy == "none" else "global"
            if policy == "principal":
                right["stray user"] = right["stray agent"] = "principal:stray"
            yield Cast(hub, policy, memory, tokens, right)
        finally:
            hub.kill()


def test_each_data_call_answers_what_the_table_says(cast: Cast) -> None:
    seen = {}
    for policy, memory, actor in DATA:
        if (policy, memory) != (cast.policy, cast.memory):
            continue
        for column in BINDINGS:
            for verb in VERBS:
                reply = _data_call(cast, actor, column, verb)
                seen[actor, column, verb] = reply.code
    expected = {
        (actor, column, verb): answer
        for (policy, memory, actor), answers in DATA.items()
        if (policy, memory) == (cast.policy, cast.memory)
        for column, answer in zip(BINDINGS, answers, strict=True)
        for verb in VERBS
    }
    assert len(expected) == 200
    assert seen == expected


def test_each_other_call_answers_what_the_table_says(cast: Cast) -> None:
    calls = (
        ("GET", "/v1/health", None),
        ("GET", "/v1/memory/capability", None),
        ("PUT", "/v1/launches/matrix", {"principal": "ann", "binding": "global"}),
        ("PUT", "/v1/launches/matrix", {"renew": True}),
        ("DELETE", "/v1/launches/matrix", None),
        ("GET", "/v1/system/config", None),
        ("PUT", "/v1/system/config", {"memory.enabled": cast.memory == "on"}),
    )
    seen = {
        actor: tuple(
            cast.hub.call(
                method, path, body, token=cast.tokens[actor], binding=cast.right[actor]
            ).code
            for method, path, body in calls
        )
        for actor in OTHER_CALLS
    }
    assert seen == OTHER_CALLS


def test_each_opening_of_a_launch_answers_what_the_table_says(cast: Cast) -> None:
    bindings = (None, "global", "principal:ann", "principal:bob", "principal:")
    seen = {}
    for policy, memory, runtime in LAUNCHES:
        if (policy, memory) == (cast.policy, cast.memory):
            seen[policy, memory, runtime] = tuple(
                cast.hub.call(
                    "PUT",
                    f"/v1/launches/{runtime.replace(' ', '-')}-{number}",
                    {"principal": "ann", "binding": binding},
                    token=cast.tokens[runtime],
                ).code
                for number, binding in enumerate(bindings)
            )
    assert seen == {key: LAUNCHES[key] for key in seen}
    assert len(seen) == 3


def test_the_agents_socket_takes_only_credentials_of_launches(cast: Cast) -> None:
    answers = {
        actor: cast.hub.call(
            "GET",
            "/v1/memory/capability",
            token=cast.tokens[actor],
            binding=cast.right[actor],
            socket=cast.hub.agents,
        ).code
        for actor in ("nobody", "forged", "user", "runtime", "admin", "agent")
    }
    assert answers == {
        "nobody": UNA, "forged": UNA, "user": FOR, "runtime": FOR, "admin": FOR, "agent": OK,
    }  # fmt: skip


def _data_call(cast: Cast, actor: str, column: str, verb: str) -> Reply:
    place = f"{actor}/{column}.md".replace(" ", "-")
    body = {
        "search": {"query": "tea"},
        "get": {"path": place},
        "upsert": {"path": place, "content": "tea\n", **ABSENT_REVISION},
        "forget": {"path": f"absent/{place}", **ABSENT_REVISION},
    }[verb]
    return cast.hub.call(
        "POST",
        f"/v1/memory/{verb}",
        body,
        token=cast.tokens[actor],
        binding=cast.binding(actor, column),
    )


def _remove_principal(hub: HubHome, name: str) -> None:
    path = hub.home / "identity" / "principals.json"
    tree = json.loads(path.read_bytes())
    del tree["principals"][name]
    path.write_text(json.dumps(tree))
