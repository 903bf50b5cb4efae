"""Which words name the conversation that Claude opens, and its id where that is known before."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from providers.base import NativeResume, Trace
from providers.claude import arguments as argv
from providers.ending import Ending

if TYPE_CHECKING:
    from providers.base import AgentRequest

RESUMES: Final = (argv.RESUME, argv.CONTINUE, "--from-pr", "--teleport")
UNNAMED: Final = "(one that Claude picks)"
"""What stands for the id of a conversation that the arguments don't name."""
READ_MEMORY: Final = b'"type":"AutoMem"'
"""What a transcript (2.1.268 and newer) holds of a native memory that was read into it."""
NAMED: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The caller's items that stay, the words that are added, and the id."""

    items: tuple[argv.Item, ...]
    words: tuple[str, ...] = ()
    native_id: str | None = None


def native_resume(items: tuple[argv.Item, ...]) -> NativeResume | None:
    """Find the conversation that the arguments continue; UNNAMED where Claude picks it."""
    for item in items:
        if item.name in RESUMES:
            found = item.values[0] if item.name == argv.RESUME and item.values else ""
            return NativeResume(native_id=found or UNNAMED, fork=argv.given(items, argv.FORK))
    return None


def choose(request: AgentRequest, items: tuple[argv.Item, ...], *, bound: bool) -> Conversation:
    """Name the conversation; arguments that resume an unbound one stay as they are."""
    named = argv.values(items, argv.SESSION_ID)
    chosen = named[-1] if named else None
    own = native_resume(items)
    if own is not None and not (bound and request.resume is not None):
        known = None if own.fork or own.native_id == UNNAMED else own.native_id
        return Conversation(items=items, native_id=chosen or known)
    if request.resume is None:
        if chosen or not request.fresh_id:
            return Conversation(items=items, native_id=chosen)
        fresh = (f"{argv.SESSION_ID}={request.fresh_id}",)
        return Conversation(items=items, words=fresh, native_id=request.fresh_id)
    kept = argv.without(items, *RESUMES, argv.FORK)
    resumed = f"{argv.RESUME}={request.resume.native_id}"
    if not request.resume.fork:
        kept = argv.without(kept, argv.SESSION_ID)
        return Conversation(items=kept, words=(resumed,), native_id=request.resume.native_id)
    if chosen or not request.fresh_id:
        return Conversation(items=kept, words=(resumed, argv.FORK), native_id=chosen)
    words = (resumed, argv.FORK, f"{argv.SESSION_ID}={request.fresh_id}")
    return Conversation(items=kept, words=words, native_id=request.fresh_id)


def memory_trace(request: AgentRequest) -> Trace | None:
    """Return where to look for native memory that the resumed conversation has read."""
    if request.resume is None or not NAMED.fullmatch(request.resume.native_id):
        return None
    # The folder is named after the working directory, links resolved, in a way of Claude's own.
    path = posixpath.join(
        user_folder(request), "projects", "*", f"{request.resume.native_id}.jsonl"
    )
    return Trace(path, READ_MEMORY)


def ending(request: AgentRequest) -> Ending:
    """Return Claude's locks, and where it lists its running processes."""
    folder = user_folder(request)
    inside = request.environment.get("CLAUDE_CONFIG_DIR") is not None
    state = folder if inside else request.home
    return Ending(
        locks=(
            f"{folder.rstrip('/')}.lock",
            posixpath.join(folder, ".oauth_refresh.lock"),
            posixpath.join(folder, ".storage-write.lock"),
            posixpath.join(state, ".claude.json.lock"),
        ),
        own=(posixpath.join(folder, "sessions"),),
    )


def user_folder(request: AgentRequest) -> str:
    """Return Claude's own folder; an empty CLAUDE_CONFIG_DIR is the working directory to it."""
    given = request.environment.get("CLAUDE_CONFIG_DIR")
    home = posixpath.join(request.home, ".claude")
    return home if given is None else posixpath.join(request.cwd, given)
