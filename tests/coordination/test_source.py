"""Who says something is read at one place, and counts by what it is, not by what it calls itself."""

import pytest

from perdure.coordination.source import Source, SourceKind


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("perdure", SourceKind.SERVICE, "perdure"),
        ("perdure.blame", SourceKind.SERVICE, "perdure.blame"),
        ("operator:root", SourceKind.OPERATOR, "root"),
        ("operator:root/prometheus", SourceKind.OPERATOR, "root/prometheus"),
        ("operator", SourceKind.OTHER, "operator"),
        ("viewer:operator:root", SourceKind.OTHER, "viewer:operator:root"),
        ("", SourceKind.OTHER, ""),
    ],
)
def test_a_source_is_what_its_text_begins_with(text: str, kind: SourceKind, name: str) -> None:
    source = Source.of(text)
    assert (source.kind, source.name) == (kind, name)
    assert source.is_of_the_site is (kind is not SourceKind.OTHER)
