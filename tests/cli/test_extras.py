"""A command whose optional part is missing says which to install."""

import pytest

from perdure.cli import extras
from perdure.errors import MissingExtra
from perdure.installation import install_command


def test_what_is_there_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "sim", ("json",))
    extras.need("sim", "whatif")


def test_what_is_missing_is_named_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "sim", ("json", "no_such_module"))
    with pytest.raises(MissingExtra) as caught:
        extras.need("sim", "whatif")
    assert str(caught.value) == (
        f"whatif: needs the optional part 'sim' (no_such_module not installed). Install it: {install_command('sim')}."
    )
