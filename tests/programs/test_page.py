"""The page of the failing programs says how many runs were judged rightly, and which were not, or not run."""

from tests.copying import replace
from tests.programs.page import page
from tests.programs.program import RANKS_OF_SRUN, TORCHRUN, programs


def test_the_page_tells_of_runs_that_were_wrong_and_of_programs_that_were_not_run():
    shape, other = replace(programs()[0], path=programs()[0].path.with_name("shape.py")), programs()[1]
    row = {
        "program": "shape", "place": "Slurm", "launch": TORCHRUN, "wrong": "", "decision": "stop", "summary": "a shape",
        "evidence": [{"role": "root", "text": "mat1 | mat2"}],
    }  # fmt: skip
    text = page(
        [row, row, {**row, "launch": RANKS_OF_SRUN, "wrong": "rank 0"}], [shape, replace(other, needs="nothing")]
    )
    assert "- Slurm: 2 of 3 runs were judged rightly; not so: shape (srun on two nodes)." in text
    assert r"| torchrun, srun on two nodes | a shape | mat1 \| mat2 | stop |" in text
    assert f"| {other.name} |" in text
    assert "not run: nothing is not installed" in text or "not run: torch is not installed" in text


def test_the_page_names_no_directory_of_the_machine_that_made_it():
    (program, *_) = programs()
    text = f'File "/some/where/lib/python3.11/site-packages/torch/serialization.py", line 1; {program.path}'
    row = {
        "program": program.name, "place": "Slurm", "launch": TORCHRUN, "wrong": "", "decision": "stop", "summary": "it",
        "evidence": [{"role": "root", "text": text}],
    }  # fmt: skip
    shown = page([row], [program])
    assert f'File "site-packages/torch/serialization.py", line 1; {program.path.name}' in shown
    assert "/some/where" not in shown
