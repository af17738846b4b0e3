"""Values that are made quickly are what `dataclass` makes, in all that can be seen of them."""

import copy
import dataclasses
import inspect
from dataclasses import FrozenInstanceError, dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.value import quick, replace


@dataclass(frozen=True, slots=True)
class Slow:
    name: str
    size: int = 3
    tags: dict = field(default_factory=dict)


@quick
@dataclass(frozen=True, slots=True)
class Quick:
    name: str
    size: int = 3
    tags: dict = field(default_factory=dict)


@quick
@dataclass(frozen=True, slots=True, order=True)
class Grown(Quick):
    colour: str = "red"


@quick
@dataclass(frozen=True, slots=True)
class Checked:
    size: int

    def __post_init__(self):
        if self.size < 0:
            raise ValueError("negative")


@quick
@dataclass(frozen=True, slots=True)
class Crowded:
    """Its fields are called what the code that makes it may call its own."""

    own: int
    set: int = 2
    thawed: int = 3
    MISSING: list = field(default_factory=list)
    cls: int = 5


ARGUMENTS = st.fixed_dictionaries(
    {"name": st.text()}, optional={"size": st.integers(), "tags": st.dictionaries(st.text(), st.integers())}
)


@given(ARGUMENTS)
def test_it_is_made_as_dataclass_makes_it(arguments):
    made = Quick(**arguments)
    assert type(made) is Quick
    assert dataclasses.asdict(made) == dataclasses.asdict(Slow(**arguments))
    assert made == Quick(*dataclasses.astuple(made))


@given(ARGUMENTS, st.text())
def test_a_copy_differs_in_what_was_named_alone(arguments, name):
    made = Quick(**arguments)
    assert replace(made, name=name) == dataclasses.replace(made, name=name)
    assert (type(replace(made)), replace(made)) == (Quick, made)
    assert replace(Checked(1), size=2) == Checked(2)


@pytest.mark.parametrize("value", [Quick("a"), Grown("a", colour="blue"), Checked(1)])
def test_nobody_changes_it(value):
    name = dataclasses.fields(value)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, "b")
    with pytest.raises(FrozenInstanceError):
        delattr(value, name)
    assert not hasattr(value, "__dict__")


def test_each_has_a_default_of_its_own():
    assert Quick("a").tags is not Quick("a").tags


def test_names_do_not_collide():
    assert dataclasses.astuple(Crowded(1)) == (1, 2, 3, [], 5)


def test_what_inherits_has_all_fields():
    grown = Grown("a", 1, {}, "blue")
    assert (grown, grown < Grown("b"), isinstance(grown, Quick)) == (Grown(name="a", size=1, colour="blue"), True, True)


@pytest.mark.parametrize("call", [lambda: Quick(), lambda: Quick("a", 1, {}, 2), lambda: Quick("a", colour="red")])
def test_wrong_arguments_are_refused_with_its_name(call):
    with pytest.raises(TypeError, match="__init__"):
        call()


def test_its_own_check_is_made():
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_a_field_that_is_not_there_is_refused():
    with pytest.raises(KeyError):
        replace(Quick("a"), colour="red")


def test_tools_see_what_they_see_of_any_dataclass():
    value = Quick("a", 1, {"b": 2})
    assert copy.deepcopy(value) == value
    assert copy.copy(value) == value
    assert list(inspect.signature(Quick).parameters) == ["name", "size", "tags"]
    assert Quick.__init__.__annotations__.keys() == Slow.__init__.__annotations__.keys()


@pytest.mark.parametrize("arguments", [{"frozen": True}, {"frozen": True, "slots": True, "kw_only": True}])
def test_what_is_no_such_dataclass_is_refused(arguments):
    with pytest.raises(TypeError, match="quick is for frozen dataclasses with slots"):

        @quick
        @dataclass(**arguments)
        class Other:
            name: str
