"""Which words name the conversation that Pi opens, and its id where that is known before."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from providers.base import Mode
from providers.pi import arguments as argv
from providers.pi.append import agent_folder

if TYPE_CHECKING:
    from providers.base import AgentRequest
    from providers.pi.version import Release

UNNAMED_FORK = "this version of Pi does not tell a fork's id here, so amux cannot resume the fork"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The caller's items that stay, the words that are added, and the id."""

    items: tuple[argv.Item, ...]
    words: tuple[str, ...] = ()
    native_id: str | None = None
    warnings: tuple[str, ...] = ()


def choose(
    request: AgentRequest, items: tuple[argv.Item, ...], release: Release, *, bound: bool
) -> Conversation:
    """Name the conversation; in RPC mode Pi tells the id of a new one itself.

    Arguments that resume an unbound conversation stay as they are.
    """
    found = argv.native_resume(items)
    if found is not None and not (bound and request.resume is not None):
        known = None if found.fork or found.native_id == argv.UNNAMED else found.native_id
        return Conversation(items=items, native_id=known)
    if request.resume is not None:
        kept = argv.without(items, *argv.CONVERSATION)
        if not request.resume.fork:
            words = (argv.SESSION, request.resume.native_id)
            return Conversation(items=kept, words=words, native_id=request.resume.native_id)
        return _fork(request, kept, release)
    if argv.given(items, argv.NO_SESSION) or request.mode is Mode.STREAM or not request.fresh_id:
        return Conversation(items=items)
    if release.names_session:
        words = (argv.SESSION_ID, request.fresh_id)
        return Conversation(items=items, words=words, native_id=request.fresh_id)
    path = _session_file(request, items)
    return Conversation(items=items, words=(argv.SESSION, path), native_id=path)


def _fork(request: AgentRequest, kept: tuple[argv.Item, ...], release: Release) -> Conversation:
    words: tuple[str, ...] = (argv.FORK, request.resume.native_id if request.resume else "")
    if request.mode is Mode.STREAM:
        return Conversation(items=kept, words=words)
    if release.names_session and request.fresh_id:
        words = (*words, argv.SESSION_ID, request.fresh_id)
        return Conversation(items=kept, words=words, native_id=request.fresh_id)
    return Conversation(items=kept, words=words, warnings=(UNNAMED_FORK,))


def _session_file(request: AgentRequest, items: tuple[argv.Item, ...]) -> str:
    """Return a path for a new session where Pi itself would look for it."""
    given = argv.values(items, argv.SESSION_DIR)
    folder = given[-1] if given else request.environment.get("PI_CODING_AGENT_SESSION_DIR")
    if not folder:
        encoded = re.sub(r"[/\\:]", "-", re.sub(r"\A[/\\]", "", request.cwd))
        folder = posixpath.join(agent_folder(request), "sessions", f"--{encoded}--")
    return posixpath.join(request.cwd, folder, f"{request.fresh_id}.jsonl")
