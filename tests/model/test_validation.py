"""One validator: what is wrong is named with its place in the document, and with what may stand there."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import pytest
from msgspec import Meta, Struct

from perdure.errors import InputError
from perdure.model.validation import in_words, read


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Lamp(Struct, frozen=True, forbid_unknown_fields=True):
    watts: Annotated[int, Meta(ge=1, le=60)]
    colour: Colour = Colour.RED
    rooms: Annotated[tuple[str, ...], Meta(max_length=2)] = ()
    lit_s: Annotated[float, Meta(ge=0)] | None = None
    label: Annotated[str, Meta(max_length=3)] = ""
    height: Annotated[float, Meta(gt=0, description="a height in metres")] = 1.0


class House(Struct, frozen=True):
    lamps: tuple[Lamp, ...] = ()


@pytest.mark.parametrize(
    ("lamp", "said"),
    [
        ({"watts": 0}, "house.lamps[1].watts: 0 is out of range. Give a whole number from 1 to 60."),
        ({"watts": True}, "house.lamps[1].watts: True is not a whole number from 1 to 60."),
        ({}, "house.lamps[1].watts: is missing. Give a whole number from 1 to 60."),
        ({"watts": 1, "color": 2}, "house.lamps[1].color: is not known. Use one of: watts, colour, rooms, lit_s,"),
        ({"watts": 1, "colour": "green"}, "house.lamps[1].colour: 'green' is not 'red' or 'blue'."),
        (
            {"watts": 1, "rooms": ["a", "b", "c"]},
            "house.lamps[1].rooms: has 3 entries. Keep it to 2.",
        ),
        ({"watts": 1, "rooms": ["a", 2]}, "house.lamps[1].rooms[1]: 2 is not a text in quotes."),
        ({"watts": 1, "lit_s": -1}, "house.lamps[1].lit_s: -1 is out of range. Give a number of at least 0."),
        ({"watts": 1, "label": "long"}, "house.lamps[1].label: has 4 characters. Keep it to 3."),
        ({"watts": 1, "height": "x"}, "house.lamps[1].height: 'x' is not a height in metres."),
        (3, "house.lamps[1]: 3 is not a table."),
    ],
)
def test_place_what_and_fix_are_said(lamp: Mapping[str, object] | int, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(House, {"lamps": [{"watts": 5}, lamp]}, "house")
    assert str(caught.value).startswith(said)


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match=r"house: '.ud800' is not known. Use names in UTF-8"):
        read(House, {"\ud800": 1}, "house")


def test_what_fits_is_read() -> None:
    assert read(House, {"lamps": [{"watts": 5, "lit_s": 3}]}, "house") == House((Lamp(5, lit_s=3.0),))
    assert in_words(bool) == "true or false"


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_no_number_is_infinite(value: float) -> None:
    with pytest.raises(InputError, match="out of range"):
        read(Annotated[float, Meta(ge=0)], value, "x")
