"""What owners ask for in their jobs' comments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.backends.owner_requests import MAX_MISREAD, OwnerRequests, owner_requests
from perdure.model.jobs import PolicyConsent, RetryPreference


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("perdure:retry=never", RetryPreference.NEVER),
        ("mine; perdure:retry=never, thanks", RetryPreference.NEVER),
        ('{"perdure": {"retry": "never"}, "APS": {}}', RetryPreference.NEVER),
        ('{"perdure": {"retry": "auto"}}', RetryPreference.AUTO),
        ('{"perdure": "never"}', RetryPreference.NEVER),
        ('{"perdure": "gently"}', RetryPreference.AUTO),
        ("perdure: retry=never", RetryPreference.NEVER),
        ("Perdure:  Retry = Never.", RetryPreference.NEVER),
        ("perdure retry=never", RetryPreference.NEVER),
        ("perdure=off", RetryPreference.NEVER),
        ("perdure:never", RetryPreference.NEVER),
        ("perdure: timeout=requeue, retry=never", RetryPreference.NEVER),
        ("'perdure:retry=never'", RetryPreference.NEVER),
        ("perdure: not found: retry away from n1. perdure why 7 #0a1b2c", RetryPreference.AUTO),
        ("perdure: see retry=never. perdure why 7 #0a1b2c", RetryPreference.AUTO),  # our own line
        ('{"perdure": ', RetryPreference.AUTO),
        ("[" * 100_000, RetryPreference.AUTO),
        ("{" + '"a":{' * 100_000, RetryPreference.AUTO),
        ("xperdure:retry=never", RetryPreference.AUTO),
        ("perdure:retry=No", RetryPreference.NEVER),
        ("PERDURE:RETRY=OFF", RetryPreference.NEVER),
        ('{"Perdure": {}, "perdure": {"Retry": "NEVER"}}', RetryPreference.NEVER),
        ('{"perdure": {"retry": false}}', RetryPreference.NEVER),
        ("perdure:retry=never perdure:retry=auto", RetryPreference.NEVER),
        ("", RetryPreference.AUTO),
    ],
)
def test_the_owners_wish_is_found(comment: str, said: RetryPreference) -> None:
    assert owner_requests(comment).retry is said


@pytest.mark.parametrize(
    ("comment", "allowed"),
    [
        ("perdure:nodes=2-3", (2, 3)),
        ("perdure:retry=never perdure:nodes=4-4", (4, 4)),
        ('{"perdure": {"nodes": "2-16"}, "APS": {}}', (2, 16)),
        ('{"perdure": {"nodes": 2}}', None),
        ("perdure:nodes=3-2", None),
        ("perdure:nodes=0-2", None),
        ("perdure:nodes=2-3x", None),
        ("perdure:nodes=2", None),
        ("", None),
    ],
)
def test_how_many_nodes_a_restart_may_have_is_found(comment: str, allowed: tuple[int, int] | None) -> None:
    assert owner_requests(comment).nodes == allowed


@pytest.mark.parametrize(
    ("comment", "misread"),
    [
        ("perdure:retry=nevr", "perdure:retry=nevr"),
        ("a note perdure:rety=never", "perdure:rety=never"),
        ('{"perdure": {"retry": "nevr"}}', "perdure:retry=nevr"),
        ("perdure:nodes=3-2", "perdure:nodes=3-2"),
        ("perdure:timeout=again", "perdure:timeout=again"),
        ("perdure:retry=never perdure:timeout=requeue", ""),
        ("perdure:retry=nevr perdure:timeout=requeue perdure:x=1", "perdure:retry=nevr"),  # the first
        ("perdure: retry=nevr", "perdure:retry=nevr"),
        ("perdure is fine", "perdure is fine"),
        ("perdure", "perdure"),
        (
            "perdure: please do not retry this one, writes to prod DB",
            "perdure: please do not retry this one, writes to prod DB",
        ),
        ("PERDURE: no\x1b[2J\nrestarts", "PERDURE: no [2J"),
        ("for the group; perdure, hands off; thanks", "perdure, hands off"),
        ("perdure:never again", "perdure:never again"),
        ('{"perdure": {"retry": "never"}', '{"perdure": {"retry": "never"}'),  # it is not closed
        ('{"perdure": ["never"]}', "perdure:retry=['never']"),
        ("perdure: retry away from n1. perdure why 7 #0a1b2c", ""),  # our own line
        ("perdure: writes to prod DB, see #123456", "perdure: writes to prod DB, see #123456"),
        ("perdure:retry=never thanks", ""),
        ("tests of perdure", ""),
        ("perdure-bench run 3", ""),
        ("perdured", ""),
    ],
)
def test_what_is_not_understood_is_kept(comment: str, misread: str) -> None:
    assert owner_requests(comment).misread == misread


@pytest.mark.parametrize("comment", ["perdure:timeout=requeue", '{"perdure": {"timeout": "Requeue"}}'])
def test_a_job_that_saves_checkpoints_may_be_put_back_at_its_walltime(comment: str) -> None:
    assert owner_requests(comment) == OwnerRequests(requeue_at_timeout=True)


@given(st.text(max_size=60))
def test_any_text_has_a_meaning(text: str) -> None:
    for comment in (text, f"perdure: {text}", f"perdure:{text}={text}", f'{{"perdure": {{"retry": "{text}"}}}}'):
        assert len(owner_requests(comment).misread) <= MAX_MISREAD


@pytest.mark.parametrize(
    ("comment", "consent"),
    [
        ("perdure:policy", PolicyConsent.ORDER),
        ("perdure:preempt", PolicyConsent.PREEMPT),
        ("mine; Perdure: Preempt", PolicyConsent.PREEMPT),
        ("perdure:policy; perdure:preempt", PolicyConsent.PREEMPT),
        ("perdure:preempt, retry=never", PolicyConsent.PREEMPT),
        ("perdure:policy=yes", PolicyConsent.ORDER),
        ("perdure:preempt=no", PolicyConsent.NONE),
        ("perdure:policy=no perdure:preempt=yes", PolicyConsent.NONE),
        ('{"perdure": {"preempt": true}}', PolicyConsent.PREEMPT),
        ("perdure:retry=never", PolicyConsent.NONE),
        ("policy preempt", PolicyConsent.NONE),
        ("perdure:preemptive", PolicyConsent.NONE),
        ("", PolicyConsent.NONE),
    ],
)
def test_an_owner_may_let_a_policy_have_the_job(comment: str, consent: PolicyConsent) -> None:
    found = owner_requests(comment)
    assert found.consent is consent
    assert not found.misread or consent is PolicyConsent.NONE
