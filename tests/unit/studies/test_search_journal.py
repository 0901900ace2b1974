"""A search goes on after a writer that was killed, or found the disk full, within a line."""

from __future__ import annotations

from pathlib import Path

from voxcast.studies.search_journal import remove_cut_line
from voxcast.studies.shared_search import JOURNAL, SharedSearch


def test_a_search_goes_on_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    SharedSearch(tmp_path, 3, 0).add("a/ridge", "ridge")
    journal = tmp_path / JOURNAL
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole.splitlines()[-1][:20])
    SharedSearch(tmp_path, 3, 0).add("b/ridge", "ridge")
    assert journal.read_bytes().startswith(whole)
    again = SharedSearch(tmp_path, 3, 0)
    assert [again.result(name, "ridge").trials for name in ("a/ridge", "b/ridge")] == [3, 3]
    assert len(again._study("b/ridge").get_trials()) == 3


def test_only_what_follows_the_last_line_break_goes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content, left in ((b"", b""), (b"a\nb\n", b"a\nb\n"), (b"a\n" + b"b" * 9000, b"a\n"),
                          (b"b" * 9000, b"")):  # fmt: skip
        path.write_bytes(content)
        remove_cut_line(path)
        assert path.read_bytes() == left
