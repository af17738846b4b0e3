"""What is known at the cut of a trace is what had ended by then, waits included."""

from dataclasses import replace

import numpy as np

from perdure.simulation.time_split import split_by_time
from tests.simulation.tables import jobs


def test_a_job_that_waited_beyond_the_cut_is_not_known_though_it_is_short() -> None:
    table = jobs((2, 0, 3), (1, 1, 2), (1, 10, 5))
    waited = np.array([3.0, 9.0, 15.0])
    later, services = split_by_time(replace(table, start_s=waited - table.duration_s, end_s=waited), 0.5, "--share")
    assert (len(later), services) == (1, (6.0,))
