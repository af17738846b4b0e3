"""Jobs whose work was done before they failed: what came after it is not worth a second run."""

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.model.output import Output, OutputFile, OutputKind
from perdure.triage.evidence.ending import with_ending
from perdure.triage.judge import judge
from perdure.triage.text.logtext import LogText
from perdure.triage.verdict import Verdict
from tests.copying import replace

FAILED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 60.0, exit_code=1)
TRAINED = "".join(f"epoch {n}/3 loss 0.{n}\nstep {n * 10} loss 0.{n}\n" for n in (1, 2, 3))
ENDS = {
    "cleanup": "Training complete. Best model saved to /proj/b/best.pt\nrm: cannot remove '/local/b/.nfs1': Device or"
    " resource busy\n",
    "of a job": "Training job 7 finished successfully.\nrm: cannot remove '/proj/x': Stale file handle\n",
    "stale": "Training complete.\nrm: cannot remove '/proj/x': Stale file handle\n",
    "upload": "Saving final model ...\nTraining complete.\nupload failed: ./out/final.pt to s3://b/final.pt Could not"
    ' connect to the endpoint URL: "https://s3.site.org/b"\n',
    "crash": "Training finished, model saved to out/final.pt\nSegmentation fault (core dumped)\n",
    "tracker": 'Finished training.\nTraceback (most recent call last):\n  File "/home/a/t.py", line 9, in <module>\n'
    "    run.finish()\nrequests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='api.wandb.ai'): timed out\n",
}
MIDDLE = {
    "checkpoint": "saved checkpoint ckpt-30.pt\nstep 31 loss 0.2\nConnectionResetError: [Errno 104] Connection reset\n",
    "steps follow": "Training complete.\nstep 1 loss 0.2\nConnectionResetError: [Errno 104] Connection reset\n",
    "a bar follows": "Training complete.\nTest:  10%|#     | 1/10 [00:01<00:09]\nStale file handle: '/proj/x'\n",
    "a fold": "Training complete for fold 1\nConnectionResetError: [Errno 104] Connection reset\n",
    "an epoch": "Training of epoch 3 finished\nConnectionResetError: [Errno 104] Connection reset\n",
    "evaluation": "Training complete.\nEvaluating on test\nConnectionResetError: [Errno 104] Connection reset\n",
    "a manager": "Training job 7 finished\nConnectionResetError: [Errno 104] Connection reset\n",
    "not": "Training not complete\nConnectionResetError: [Errno 104] Connection reset\n",
    "saved": "model saved to out/best.pt\nConnectionResetError: [Errno 104] Connection reset\n",
    "own code": "Training complete.\nKeyError: 'f1'\n",
}


def told(log: str, attempt: Attempt = FAILED) -> Verdict:
    return with_ending(judge(log.encode(), attempt), LogText.of(log.encode()), attempt)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_work_that_was_done_before_the_failure_is_said_to_be_done(end: str) -> None:
    for log in (TRAINED + end, TRAINED + end + "srun: error: n1: task 0: Exited with exit code 1\n"):
        verdict = told(log)
        assert verdict.work_done
        assert verdict.ending.startswith("the work was done (line")
        assert ("crashed" in verdict.ending) == ("Segmentation" in end)


@pytest.mark.parametrize("end", MIDDLE.values(), ids=MIDDLE)
def test_work_that_goes_on_is_not_done(end: str) -> None:
    assert not told(TRAINED + end).work_done


def test_the_word_may_stand_in_another_file_than_the_cause() -> None:
    out = OutputFile("/j/7.out", (TRAINED + "Training complete.\n").encode())
    err = OutputFile("/j/7.err", b"rm: cannot remove '/proj/x': Stale file handle\n", kind=OutputKind.STDERR)
    for files, is_done in (
        ((out, err), True),
        ((replace(out, tail=out.tail + b"step 41 loss 1\n"), err), False),
        ((replace(out, kind=OutputKind.RANK, rank="1"), err), False),
    ):
        output = Output(files)
        verdict = with_ending(judge(output, FAILED), LogText.of_output(output), FAILED)
        assert verdict.work_done is is_done
        assert ("of 7.out" in verdict.ending) is is_done
        assert verdict.ending.startswith("the work was done (line 7 of 7.out: 'Training complete.'): ") is is_done


def test_the_line_that_says_so_is_named_by_its_number_alone_where_there_is_one_log() -> None:
    for above in range(4):
        verdict = told("warming up\n" * above + TRAINED + ENDS["stale"])
        assert verdict.ending.startswith(f"the work was done (line {above + 7}: 'Training complete.'): ")
