"""Which words name the conversation that Claude opens, and its id where that is known before."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from amux.providers.base import FileSearch, NativeResume, Shutdown
from amux.providers.claude import arguments as argv

if TYPE_CHECKING:
    from amux.providers.base import AgentRequest, Facts

RESUMES: Final = (argv.RESUME, argv.CONTINUE, "--from-pr", "--teleport")
UNNAMED: Final = "(one that Claude picks)"
"""What stands for the id of a conversation that the arguments don't name."""
READ_MEMORY: Final = b'"type":"AutoMem"'
"""What a transcript (2.1.268 and newer) holds of a native memory that was read into it."""
NAMED: Final = re.compile(r"[A-Za-z0-9._-]+")
IDENTIFIER: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
ENDING: Final = ".jsonl"
LONGEST_SLUG: Final = 200
"""Characters of a folder's name after which Claude cuts it and adds a hash of its own."""


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


def resolve(
    request: AgentRequest, items: tuple[argv.Item, ...], named: NativeResume, facts: Facts
) -> NativeResume | tuple[str, ...] | None:
    """Find the conversation that Claude will open; None where somebody will pick it in Claude.

    A launch that picks is bound from its start, as what `/resume` opens on the screen is.
    """
    if IDENTIFIER.fullmatch(named.native_id):
        return replace(named, native_id=named.native_id.lower())
    path = _path(named, request.cwd)
    slug = re.sub(r"[^A-Za-z0-9]", "-", request.cwd)
    if path is None and (not _continues(items) or len(slug) > LONGEST_SLUG):
        return None
    asked = path or posixpath.join(user_folder(request), "projects", slug, "")
    if asked not in facts.files:
        return (asked,)
    content = facts.files[asked]
    if path is not None:
        return replace(named, native_id=_inside(path, content) or named.native_id, place=path)
    newest = _newest(content)
    return None if newest is None else replace(named, native_id=newest)


def _continues(items: tuple[argv.Item, ...]) -> bool:
    """Say whether it is `--continue` that counts."""
    return next(one.name for one in items if one.name in RESUMES) == argv.CONTINUE


def _path(resume: NativeResume, cwd: str) -> str | None:
    """Return the file that `--resume` names instead of an id."""
    named = resume.native_id
    return posixpath.join(cwd, named) if named.endswith(ENDING) else None


def _inside(path: str, content: bytes | None) -> str | None:
    """Return the id of the conversation in a file: what its lines say, else its name."""
    for line in (content or b"").splitlines():
        try:
            message = json.loads(line)
        except ValueError:
            continue
        said = message.get("sessionId") if isinstance(message, dict) else None
        if isinstance(said, str) and IDENTIFIER.fullmatch(said):
            return said.lower()
    stem = posixpath.basename(path).removesuffix(ENDING)
    return stem.lower() if content is not None and IDENTIFIER.fullmatch(stem) else None


def _newest(listing: bytes | None) -> str | None:
    """Return the id of the conversation that was written last, from a listed folder."""
    found: list[tuple[int, str]] = []
    for line in (listing or b"").decode("utf-8", "replace").splitlines():
        name, _, rest = line.partition("\t")
        size, _, changed = rest.partition("\t")
        stem = name.removesuffix(ENDING)
        if stem != name and IDENTIFIER.fullmatch(stem) and size != "0" and changed.isdigit():
            found.append((int(changed), stem))
    return max(found)[1] if found else None


def choose_id(request: AgentRequest, items: tuple[argv.Item, ...], *, bound: bool) -> Conversation:
    """Name the conversation; arguments that resume an unbound one stay as they are."""
    named = argv.values(items, argv.SESSION_ID)
    chosen = named[-1] if named else None
    own = native_resume(items)
    if own is not None and not (bound and request.resume is not None):
        return _as_given(request, items, own, chosen)
    if request.resume is None:
        if chosen or not request.fresh_id:
            return Conversation(items=items, native_id=chosen)
        fresh = (f"{argv.SESSION_ID}={request.fresh_id}",)
        return Conversation(items=items, words=fresh, native_id=request.fresh_id)
    kept = argv.without(items, *RESUMES, argv.FORK)
    resumed = f"{argv.RESUME}={request.resume.place or request.resume.native_id}"
    if not request.resume.fork:
        kept = argv.without(kept, argv.SESSION_ID)
        return Conversation(items=kept, words=(resumed,), native_id=request.resume.native_id)
    if chosen or not request.fresh_id:
        return Conversation(items=kept, words=(resumed, argv.FORK), native_id=chosen)
    words = (resumed, argv.FORK, f"{argv.SESSION_ID}={request.fresh_id}")
    return Conversation(items=kept, words=words, native_id=request.fresh_id)


def _as_given(
    request: AgentRequest, items: tuple[argv.Item, ...], own: NativeResume, chosen: str | None
) -> Conversation:
    """Leave the caller's resume as it is; where Claude would choose, name what the report names."""
    settled = request.resume.native_id if request.resume is not None else own.native_id
    known = None if own.fork or not IDENTIFIER.fullmatch(settled) else settled
    if own.native_id != UNNAMED or not IDENTIFIER.fullmatch(settled):
        return Conversation(items=items, native_id=chosen or known)
    words = (f"{argv.RESUME}={settled}",)
    kept = argv.without(items, argv.CONTINUE)
    return Conversation(items=kept, words=words, native_id=chosen or known)


def memory_search(request: AgentRequest) -> FileSearch | None:
    """Return where to look for native memory that the resumed conversation has read."""
    if request.resume is None or not NAMED.fullmatch(request.resume.native_id):
        return None
    # The folder is named after the working directory, links resolved, in a way of Claude's own.
    path = posixpath.join(
        user_folder(request), "projects", "*", f"{request.resume.native_id}.jsonl"
    )
    return FileSearch(path, READ_MEMORY)


def ending(request: AgentRequest) -> Shutdown:
    """Return Claude's locks, and where it lists its running processes."""
    folder = user_folder(request)
    inside = request.environment.get("CLAUDE_CONFIG_DIR") is not None
    state = folder if inside else request.home
    return Shutdown(
        lock_files=(
            f"{folder.rstrip('/')}.lock",
            posixpath.join(folder, ".oauth_refresh.lock"),
            posixpath.join(folder, ".storage-write.lock"),
            posixpath.join(state, ".claude.json.lock"),
        ),
        pid_folders=(posixpath.join(folder, "sessions"),),
    )


def user_folder(request: AgentRequest) -> str:
    """Return Claude's own folder; an empty CLAUDE_CONFIG_DIR is the working directory to it."""
    given = request.environment.get("CLAUDE_CONFIG_DIR")
    home = posixpath.join(request.home, ".claude")
    return home if given is None else posixpath.join(request.cwd, given)
