"""Which words name the conversation that Pi opens, and its id where that is known before."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amux.providers.base import Mode
from amux.providers.pi import arguments as argv
from amux.providers.pi import session_files

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest, NativeResume
    from amux.providers.pi.version import Release

UNNAMED_FORK = "this version of Pi does not tell a fork's id here, so amux cannot resume the fork"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The caller's items that stay, the words that are added, and the id."""

    items: tuple[argv.Item, ...]
    words: tuple[str, ...] = ()
    native_id: str | None = None
    warnings: tuple[str, ...] = ()


def choose_id(
    request: AgentRequest, items: tuple[argv.Item, ...], release: Release, *, bound: bool
) -> Conversation:
    """Name the conversation; in RPC mode Pi tells the id of a new one itself.

    Arguments that resume an unbound conversation stay as they are.
    """
    found = argv.native_resume(items)
    if found is not None and not (bound and request.resume is not None):
        known = None if found.fork or found.native_id == argv.LATEST else found.native_id
        if not bound or known:
            return Conversation(items=items, native_id=known)
        items = argv.without(items, argv.CONTINUE)  # there is none, so a new one begins
    if request.resume is not None:
        kept = argv.without(items, *argv.CONVERSATION)
        if not request.resume.fork:
            words = (argv.SESSION, request.resume.place or request.resume.native_id)
            return Conversation(items=kept, words=words, native_id=request.resume.native_id)
        return _fork(request, request.resume, kept, release)
    if argv.given(items, argv.NO_SESSION) or request.mode is Mode.STREAM or not request.fresh_id:
        return Conversation(items=items)
    if release.names_session:
        words = (argv.SESSION_ID, request.fresh_id)
        return Conversation(items=items, words=words, native_id=request.fresh_id)
    path = _session_file(request, items)
    return Conversation(items=items, words=(argv.SESSION, path), native_id=path)


def _fork(
    request: AgentRequest, resume: NativeResume, kept: tuple[argv.Item, ...], release: Release
) -> Conversation:
    words: tuple[str, ...] = (argv.FORK, resume.place or resume.native_id)
    if request.mode is Mode.STREAM:
        return Conversation(items=kept, words=words)
    if release.names_session and request.fresh_id:
        words = (*words, argv.SESSION_ID, request.fresh_id)
        return Conversation(items=kept, words=words, native_id=request.fresh_id)
    return Conversation(items=kept, words=words, warnings=(UNNAMED_FORK,))


def _session_file(request: AgentRequest, items: tuple[argv.Item, ...]) -> str:
    """Return a path for a new session where Pi itself would look for it."""
    folder = session_files.chosen_folder(request, items) or session_files.usual_folder(request)
    return posixpath.join(folder, f"{request.fresh_id}.jsonl")
