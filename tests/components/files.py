"""The suite's second half: what a component makes of its files, as commands wrote them, and of files that are not its own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from glow.errors import ArtifactError, ArtifactNotFoundError, FormatError, IntegrityError, MismatchError
from glow.index import COMPONENTS, DELTA, Index, existing_rules
from glow.index.postings import POSTINGS
from glow.index.spelling import SPELLING
from tests.components.cases import AnyComponent, needs_of
from tests.components.probes import PROBES, Seen
from tests.components.versions import Edited, Version, Versions, edits

__all__ = ["FileCase", "Files"]

FOR_ADDED_ALONE = ("stems/", "learned-words/")
"""What only additions read; searches do not open it."""
REQUIRED = {"stored_fields", "columns", "vectors"}
"""No version can be without these."""
ADVICE = ("rebuild the index", "roll back to", "build the index with", "export it again")


@dataclass
class FileCase:
    """A component in versions of a kind of index."""

    component: AnyComponent  # the component
    versions: Versions  # the versions
    folder: Path  # for copies

    def edited(self, version: Version | None = None) -> Edited:
        """A copy of the version with the largest delta, or of another."""
        version = version or self.versions.last
        return Edited(version, self.folder / version.folder.name)

    def answers(self, index: Index) -> Any:
        return PROBES[self.component.name](Seen.of(index.view))

    def dependents(self) -> list[AnyComponent]:
        name = self.component.name
        return [each for each in COMPONENTS if each.name == name or name in needs_of(each)]

    def names(self, edited: Edited) -> list[str]:
        found = [*edited.names(self.component), *edited.names(self.component, DELTA)]
        assert len({name.startswith(DELTA) for name in found}) == 2
        return found

    def is_named(self, error: ArtifactError, name: str) -> bool:
        """Whether an error says which file or component it is about, and what to do."""
        told = str(error)
        parts = [name, *Path(name).parts[-2:], self.component.label]
        folders = [f"{part}/" for part in Path(name).parts[:-1] if part != "delta"]
        return any(part in told for part in [*parts, *folders]) and any(advice in told for advice in ADVICE)


class Files:
    """Damage is found by name, what is the same is shared, what an older release had not is missed and nothing else; `file_case` says of what."""

    def test_damaged_files_are_named(self, file_case: FileCase) -> None:
        """Lost, longer, cut, or with another byte."""
        edited = file_case.edited()
        for name in file_case.names(edited):
            whole = (edited.folder / name).read_bytes()
            half = len(whole) // 2
            damages: list[bytes | None] = [None, whole + b"\0"]
            if whole:
                damages += [whole[:half], whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1 :]]
            for content in damages:
                edited.change({name: content}, agrees=False)
                with pytest.raises(IntegrityError, match=f"/{name}"):
                    edited.open()
                edited.mend({name: None})
        assert file_case.answers(edited.open()) == file_case.answers(edited.version.index)

    def test_a_file_that_the_manifest_lacks_is_not_opened(self, file_case: FileCase) -> None:
        edited = file_case.edited()
        for name in file_case.names(edited):
            if name.startswith(FOR_ADDED_ALONE[0]):
                continue
            content = (edited.folder / name).read_bytes()
            edited.change({name: None}, agrees=True)
            (edited.folder / name).write_bytes(content)
            with pytest.raises((MismatchError, ArtifactNotFoundError)) as caught:
                edited.open()
            assert file_case.is_named(caught.value, name), caught.value
            edited.mend({name: None})

    def test_files_of_other_documents_are_refused(self, file_case: FileCase) -> None:
        versions, component = file_case.versions, file_case.component
        edited, own = file_case.edited(), component.paths
        for below, other in (("", versions.compacted), (DELTA, versions.first)):
            changes: dict[str, bytes | None] = dict.fromkeys(
                name for name in edited.names(component, below) if name.removeprefix(below).startswith(own)
            )
            for name in [name for name in other.index.manifest.files if name.startswith(below)]:
                if name.removeprefix(below).startswith(own):
                    changes[name] = (other.folder / name).read_bytes()
            assert any(content is not None for content in changes.values())
            edited.change(changes, agrees=True)
            if component.per == "index":  # of no rows: nothing tells that they are another's
                edited.open()
            else:
                with pytest.raises((FormatError, MismatchError)) as caught:
                    edited.open()
                assert any(file_case.is_named(caught.value, name) for name in changes), caught.value
            edited.mend(changes)

    def test_a_file_that_is_not_what_it_must_be_is_refused(self, file_case: FileCase) -> None:
        """One alone, with a manifest that agrees."""
        edited = file_case.edited()
        self._refuse_edits(file_case, edited, file_case.names(edited))
        # Headers once more without a delta, which a delta's would be compared with.
        alone = file_case.edited(file_case.versions.base)
        headers = [name for name in alone.names(file_case.component) if name.endswith(".json")]
        self._refuse_edits(file_case, alone, headers)

    def _refuse_edits(self, file_case: FileCase, edited: Edited, names: list[str]) -> None:
        for name in names:
            if name.startswith(FOR_ADDED_ALONE):
                continue
            for how, content in edits(edited.version.folder / name):
                if content == (edited.version.folder / name).read_bytes():
                    continue
                edited.change({name: content}, agrees=True)
                try:
                    edited.open()
                    raise AssertionError(f"{name} was opened: {how}")
                except (FormatError, MismatchError) as error:
                    assert file_case.is_named(error, name), f"{name}, {how}: {error}"
                edited.mend({name: None})

    def test_a_manifest_that_counts_otherwise_is_refused(self, file_case: FileCase) -> None:
        for made, remedy in (("last", "roll back to its base"), ("compacted", "rebuild the index")):
            edited = file_case.edited(getattr(file_case.versions, made))
            for name, count in file_case.component.counts(edited.version.index[file_case.component]).items():
                edited.change({}, agrees=True, counts={name: count + 1})
                said = f"{count} .*{name}, {count + 1} .*in the manifest; {remedy}"
                with pytest.raises(MismatchError, match=said):
                    edited.open()
                edited.mend({})

    def test_what_is_the_same_file_is_opened_once(self, file_case: FileCase) -> None:
        """And what needs another component goes with that."""
        edited, component = file_case.edited(), file_case.component
        sound = edited.version.index
        again = edited.open()
        assert again.base is not sound.base
        for each in COMPONENTS:
            assert again.base.get(each) is sound.base.get(each)
        names = [name for name in edited.names(component) if not name.startswith("reranker/")]
        new = file_case.dependents()
        for name in {names[0], names[-1]}:
            edited.change({name: (edited.folder / name).read_bytes()}, agrees=True)
            other = edited.open()
            for each in COMPONENTS:
                if sound.base.get(each) is not None:
                    assert (other.base[each] is not sound.base[each]) == (each in new), (name, each.name)
            assert file_case.answers(other) == file_case.answers(sound)
            edited.mend({name: None})

    def test_a_version_without_it_is_searched_without_it_or_refused(self, file_case: FileCase) -> None:
        """As an older release left it; also without what needs the component."""
        edited, component = file_case.edited(), file_case.component
        lost = file_case.dependents()
        names = [name for each in lost for below in ("", DELTA) for name in edited.names(each, below)]
        edited.change(dict.fromkeys(names), agrees=True)
        if component.name in REQUIRED or component.name == "passages":
            with pytest.raises((FormatError, MismatchError)) as caught:
                edited.open()
            assert self._is_missed(file_case, edited, caught.value), caught.value
            return
        index = edited.open()
        assert [each.name for each in COMPONENTS if index.holds(each)] == [
            each.name for each in COMPONENTS if edited.version.index.holds(each) and each not in lost
        ]
        for request in component.serves(None):
            assert "build it with" in index.refusals[request], request
            served = edited.version.index.refusals[request]
            assert served == "" or request not in component.serves(edited.version.index[component])
        held = existing_rules(index.base, delta=True)
        assert not any(each.name in held for each in lost)
        assert component.info(None).items() <= index.info().items()
        assert not component.part or component.part not in index.parts()
        if component is SPELLING:
            assert index.speller is None
        for each in COMPONENTS:
            if index.holds(each):
                PROBES[each.name](Seen.of(index.view))

    def test_base_and_delta_have_it_or_neither(self, file_case: FileCase) -> None:
        """One alone would stand for both."""
        edited, component = file_case.edited(), file_case.component
        for below in (DELTA, ""):
            if not below and component.per == "index":
                continue  # an older release made none, which the delta's must not stand for
            names = [name for each in file_case.dependents() for name in edited.names(each, below)]
            edited.change(dict.fromkeys(names), agrees=True)
            with pytest.raises((FormatError, MismatchError)) as caught:
                edited.open()
            assert self._is_missed(file_case, edited, caught.value), caught.value
            if component is POSTINGS:
                where = "base" if below else "delta"
                assert f"impacts in its {where} alone; roll back to its base" in str(caught.value)
            edited.mend(dict.fromkeys(names))

    def _is_missed(self, file_case: FileCase, edited: Edited, error: ArtifactError) -> bool:
        """Whether an error names what is not there, or what does not fit without it: a vector of every document."""
        cut = [each for each in COMPONENTS if each.per == "vector" and file_case.component.name == "passages"]
        named = [name for each in cut for name in edited.names(each)]
        return ("no metadata columns" in str(error) or "vectors (flat)" in str(error)) or any(
            file_case.is_named(error, name) for name in (edited.names(file_case.component)[0], *named)
        )

    def test_a_compacted_version_answers_as_base_and_delta(self, file_case: FileCase) -> None:
        indexes = [each.index for each in (file_case.versions.last, file_case.versions.compacted)]
        assert indexes[0].delta is not None and indexes[1].delta is None
        if file_case.component is SPELLING:  # what is gone counts until it is compacted
            (more, *_), (less, *_) = (file_case.answers(index) for index in indexes)
            assert all(more[word] >= count for word, count in less.items())
        else:
            joined, compacted = (file_case.answers(index) for index in indexes)
            assert joined == compacted
