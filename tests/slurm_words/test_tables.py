"""What other parts make of Slurm's words is made of words that Slurm has."""

from perdure.coordination.bridges import slurm as bridge
from perdure.slurm_words.states import ATTEMPT_STATES, ENDS, ENDS_GRAVEST_FIRST, FAILURES, RARE_ENDS
from perdure.traces import slurm_cells


def test_tables_name_states_that_are_known() -> None:
    for table in (bridge._JOB_STATES, slurm_cells._ENDINGS, FAILURES, ENDS, RARE_ENDS, ENDS_GRAVEST_FIRST):
        assert set(table) <= ATTEMPT_STATES.keys()


def test_a_state_is_an_end_in_all_tables_or_in_none() -> None:
    assert set(ENDS_GRAVEST_FIRST) - {"REQUEUED"} == ENDS | RARE_ENDS
    assert set(FAILURES) - {"SPECIAL_EXIT"} <= ENDS | RARE_ENDS
