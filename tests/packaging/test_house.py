"""The house stays small enough to live in: functions, modules, and what the rooms of the service know of each other."""

from tests.packaging.house import SOURCES, read_files, rooms_of

FILES = read_files(SOURCES)


def test_no_function_is_longer_than_a_screen() -> None:
    long = {name: lines for file in FILES for name, lines in file.functions() if lines > 60}
    assert long == {}


def test_no_module_has_more_than_500_lines() -> None:
    assert {str(file.path): file.lines for file in FILES if file.lines > 500} == {}


def test_rooms_of_the_service_import_few_others() -> None:
    assert len(rooms_of(FILES)) <= 40
