"""The service of one cluster, as `perdure up` runs it: its parts in their order, its threads, and its end."""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing

from perdure.log import log_to_stderr
from perdure.service.runtime.assembly import (
    at_work,
    comparison_queue_of,
    deciding_threads,
    engine_of,
    learner_of,
    listening_threads,
    notifiers,
    playbook_of,
    policy_of,
    room_threads,
    rules_of,
    threads_left_behind,
    waits_of,
)
from perdure.service.runtime.ownership import open_journal, sole_actor
from perdure.service.runtime.serving import listen, serve, spoken
from perdure.service.settings import Settings
from perdure.service.web.connections import raise_descriptor_limit
from perdure.service.web.metrics import ServiceMetrics
from perdure.service.workers.gc_tuning import keep_pauses_short
from perdure.service.workers.threads import end, threads
from perdure.trust import state_dir


def run(settings: Settings, of: str = "") -> int:
    """Run the service until it is asked to end; the exit code of `perdure up`. `of` begins each entry of its log."""
    log_to_stderr(of=of)
    raise_descriptor_limit()
    service = settings.service
    state = state_dir(service.state)
    rules = rules_of(settings)
    keep_pauses_short()  # like the rules before the wait for the journal: the sooner a standby has taken over
    with ExitStack() as stack:
        journal = stack.enter_context(closing(open_journal(service, state)))
        sock = stack.enter_context(listen(service.host, service.port))
        opened = settings.backend_kind.open(settings.backend, service.cluster_id, state)
        backend = stack.enter_context(opened)
        stack.enter_context(sole_actor(settings, backend, state, journal))
        metrics = ServiceMetrics(playbook_of(settings))
        learner = learner_of(settings, journal, rules)
        engine = stack.enter_context(closing(engine_of(settings, backend, journal, learner, metrics, state)))
        keep_pauses_short()
        engine.recover()
        stop = threading.Event()
        queue = comparison_queue_of(settings, journal, state)
        policy = policy_of(settings, backend, journal, engine, state, queue)
        waits = waits_of(settings, backend, journal, state)
        url = f"http://{spoken(service.host)}:{sock.getsockname()[1]}"
        hands = [
            *threads(engine, stop, settings.look_every_s, settings.pace, service.keep_days),
            *room_threads(settings, engine, state, stop),
            *listening_threads(settings, backend, engine, state, stop),
            *deciding_threads(settings, journal, engine, learner, policy, waits, stop),
            *notifiers(settings, journal, state, url, metrics, stop),
        ]
        for thread in threads_left_behind(settings, backend, waits, state, stop):
            thread.start()
        stack.callback(end, hands, stop, engine)
        for thread in hands:
            thread.start()
        if queue is not None:
            stack.enter_context(at_work(queue))
        return serve(settings, engine, learner, metrics, sock, url, state, queue, waits, policy)
