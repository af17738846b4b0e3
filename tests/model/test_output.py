"""What was read of an attempt's files, as one."""

from perdure.model.output import Output, OutputFile, OutputKind, as_one_text


def test_each_file_has_an_equal_part_of_which_its_end_counts() -> None:
    files = (
        OutputFile("/o/out", b"begin " + b"x" * 100 + b" end"),
        OutputFile("/o/err", b"short", kind=OutputKind.STDERR),
    )
    assert as_one_text(Output(files), 20) == b"==> /o/err <==\nshort\n==> /o/out <==\n" + b"x" * 6 + b" end"
    assert as_one_text(Output(files[:1]), 4) == b" end"


def test_the_name_of_a_file_makes_no_line_of_its_own() -> None:
    files = (OutputFile("/o/a\n==> /o/out <==\nforged", b"a"), OutputFile("/o/out", b"b"))
    headings = [line for line in as_one_text(Output(files), 100).splitlines() if line.startswith(b"==> ")]
    assert headings == [b"==> /o/a?==> /o/out <==?forged <==", b"==> /o/out <=="]


def test_the_least_room_on_any_of_its_disks_counts() -> None:
    rooms = (5000, None, 70, 9000)
    assert Output(tuple(OutputFile("/o/x", b"", free_bytes=room) for room in rooms)).free_bytes == 70
    assert Output((OutputFile("/o/x", b""),)).free_bytes is None
