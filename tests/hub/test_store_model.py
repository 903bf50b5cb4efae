"""Random sequences of the verbs, offline edits and restarts against a dictionary."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from amux.hub.errors import Conflict, InvalidPath, LimitExceeded
from amux.hub.limits import Limits
from amux.hub.values import ABSENT, Scope
from fixtures.memory import Memory, open_memory

PATHS = ("MEMORY.md", "a.md", "A.md", "t/a.md", "t/b.md", "T/c.md", "t/u/a.md")
CONTENTS = ("", "one\n", "two\n", "\u8bb0\u5fc6\n", "x" * 60, "y" * 90)
LIMITS = Limits(scope_documents=3, scope_bytes=150, entry_bytes=70, document_bytes=80)


class Model(RuleBasedStateMachine):
    """The store and two dictionaries, one for each scope, do the same things."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.memory = open_memory(self.folder, limits=LIMITS)
        self.expected: dict[str | None, dict[str, str]] = {None: {}, "ann": {}}

    def scoped(self, principal: str | None) -> tuple[Memory, dict[str, str]]:
        memory = Memory(self.memory.store, self.memory.root, Scope(principal))
        return memory, self.expected[principal]

    @staticmethod
    def revision(documents: dict[str, str], path: str) -> str:
        if path not in documents:
            return ABSENT
        return hashlib.sha256(documents[path].encode()).hexdigest()

    @staticmethod
    def twin(documents: dict[str, str], path: str) -> bool:
        """Tell whether a segment of the path is spelled otherwise in a document's path."""
        mine = path.split("/")
        for other in documents:
            for ours, theirs in zip(mine, other.split("/"), strict=False):
                if ours != theirs:
                    if ours.lower() == theirs.lower():
                        return True
                    break
        return False

    @rule(
        principal=st.sampled_from([None, "ann"]),
        path=st.sampled_from(PATHS),
        content=st.sampled_from(CONTENTS),
        stale=st.booleans(),
    )
    def upsert(self, principal: str | None, path: str, content: str, *, stale: bool) -> None:
        memory, documents = self.scoped(principal)
        known = self.revision(documents, path)
        expected = "0" * 64 if stale else known
        old = documents.get(path)
        size = sum(len(text.encode()) for text in documents.values())
        grown = size - len((old or "").encode()) + len(content.encode())
        grows = old is None or len(content.encode()) > len(old.encode())
        most = LIMITS.entry_bytes if path == "MEMORY.md" else LIMITS.document_bytes
        refusal: type[Exception] | None = None
        if self.twin(documents, path):
            refusal = InvalidPath
        elif len(content.encode()) > most or (
            grows
            and (len({*documents, path}) > LIMITS.scope_documents or grown > LIMITS.scope_bytes)
        ):
            refusal = LimitExceeded
        elif content != old and expected != known:
            refusal = Conflict
        if refusal is None:
            written = memory.put(path, content, expected)
            documents[path] = content
            assert written.unchanged is (content == old)
            assert written.revision == self.revision(documents, path)
            return
        try:
            memory.put(path, content, expected)
        except refusal:
            return
        raise AssertionError(f"{path} was written, {refusal.__name__} was due")

    @rule(
        principal=st.sampled_from([None, "ann"]),
        path=st.sampled_from(PATHS),
        stale=st.booleans(),
    )
    def forget(self, principal: str | None, path: str, *, stale: bool) -> None:
        memory, documents = self.scoped(principal)
        known = self.revision(documents, path)
        if self.twin(documents, path):
            return
        if path in documents and stale:
            try:
                memory.drop(path, "0" * 64)
            except Conflict as conflict:
                assert conflict.revision == known  # noqa: PT017  # the branch is the point
                return
            raise AssertionError("a stale delete went through")
        gone = memory.drop(path, known)
        assert gone.already_absent is (path not in documents)
        documents.pop(path, None)

    @precondition(lambda self: self.expected[None])
    @rule(data=st.data())
    def edit_offline(self, data: st.DataObject) -> None:
        memory, documents = self.scoped(None)
        path = data.draw(st.sampled_from(sorted(documents)))
        documents[path] = "edited\n"
        memory.offline(path, "edited\n")

    @rule()
    def restart(self) -> None:
        (self.memory.root / "global").mkdir(parents=True, exist_ok=True)
        (self.memory.root / "global" / ".amux-0011223344556677.tmp").write_text("cut off")
        self.memory = open_memory(self.folder, limits=LIMITS)
        assert self.memory.store.sweep() == 1

    @invariant()
    def every_verb_sees_the_same_documents(self) -> None:
        for principal in self.expected:
            memory, documents = self.scoped(principal)
            on_disk = {
                str(path.relative_to(memory.folder)): path.read_text()
                for path in memory.folder.rglob("*")
                if path.is_file()
            }
            assert on_disk == documents
            for path, text in documents.items():
                shown = memory.show(path)
                assert (shown.text, shown.revision) == (text, self.revision(documents, path))
            answer = memory.find("md one")
            assert [match.path for match in answer.matches if "/" not in match.path] == sorted(
                (path for path in documents if "/" not in path),
                key=lambda path: ("one" not in documents[path], path),
            )
            assert answer.scanned_files == len(documents)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


TestStoreAgainstAModel = Model.TestCase
TestStoreAgainstAModel.settings = settings(
    max_examples=40, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
