"""What the word of a user brings about, and of two: for each of Perdure's handlers; a new one has to be put here."""

import pytest

from perdure.coordination.handlers.registry import HANDLERS
from perdure.coordination.messages import Ticked
from perdure.coordination.playbook import site_playbook
from perdure.coordination.record import Scope
from tests.coordination.test_handlers import NOW, Site, raised, up

TWO_USERS = {"drain", "set-down"}  # suffice for what is done to nodes
ONE_USER = {"grant-time"}  # suffices for what is done to the job that it is about
OF_SHARED = {"hold-waiting", "throttle", "move-least", "release-held"}  # the site's word alone
DO_NOTHING = {"count-starts", "escalate", "fail-task", "hold-newcomers", "leave", "name-signal", "retry"}
# hold-newcomers holds where the site has said before that something is down


def brought_about(handler: str, *sources: str) -> bool:
    """Whether anything is done, or a job is told to do anything."""
    scope = Scope.GLOBAL if handler in OF_SHARED else Scope.LOCAL
    text = f'[failures.mine]\nscope = "{scope}"\nlevels = {{ resource_manager = "{handler}" }}\n'
    place = Site(nodes=up("n1", "n2"), playbook=site_playbook(text, "site.toml"))
    place.wait("1")
    place.run("2", "n1", walltime_s=3600.0)
    about = {"resource": "store"} if handler in OF_SHARED else {"job_id": "2", "nodes": ("n1",)}
    if handler == "release-held":
        place.take(raised("storage.down", "down", scope=Scope.GLOBAL, resource="store"))
    known = {record.id for record in place.records()}
    done = [place.take(raised("mine", f"x{n}", source, scope, **about)) for n, source in enumerate(sources)]
    done += [place.take(Ticked(), now=NOW + later_s) for later_s in (10.0, 400.0)]
    told = {record.id for record in place.records()} - known - {f"x{n}" for n in range(len(sources))}
    return any(done) or bool(told)


def test_no_handler_is_left_out() -> None:
    assert HANDLERS.keys() == TWO_USERS | ONE_USER | OF_SHARED | DO_NOTHING


@pytest.mark.parametrize("handler", sorted(HANDLERS))
def test_the_word_of_users_brings_about_what_it_may_and_no_more(handler: str) -> None:
    acts = handler not in DO_NOTHING
    assert brought_about(handler, "operator:root") == acts
    assert brought_about(handler, "viewer:ada") == (handler in ONE_USER)
    assert brought_about(handler, "viewer:ada", "viewer:bob") == (handler in ONE_USER | TWO_USERS)
