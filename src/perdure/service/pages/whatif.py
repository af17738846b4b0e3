"""What if: ask how other policies would have scheduled the same jobs, and see what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from perdure.errors import InputError
from perdure.service.api.whatif import SIM, ComparisonId, bench_of, item, listed, put
from perdure.service.auth import Identity
from perdure.service.context import Here, Viewer, Web
from perdure.service.pages.render import done, is_htmx, page
from perdure.service.queries import history
from perdure.service.whatif.ask import FAILURE_NAMES, MAX_SEEDS, PLACEMENT_NAMES, RETRY_NAMES, Ask, policy_names
from perdure.service.whatif.comparison import Comparison
from perdure.traces.read import FORMATS

router = APIRouter()

POLICY_WORDS: Mapping[str, str] = {
    "fifo": "who came first; nobody passes",
    "fjf": "who came first; what does not fit is passed over",
    "sjf": "the shortest first",
    "fewest-gpus": "the narrowest first",
    "srtf": "the least time left, preempting",
    "srsf": "the least GPU time left, preempting",
    "las": "who has had the least time",
    "las-2d": "who has had the least GPU time (Tiresias)",
    "gittins-2d": "who most likely ends soon (Tiresias)",
    "philly": "shares of virtual clusters, borrowed when idle",
    "capacity": "guaranteed shares of virtual clusters",
    "drf": "who holds the least of what counts",
    "tetris": "what packs best",
    "easy": "first come, with backfill",
    "conservative": "backfill that delays nobody",
    "maxmin": "rounds, to whom has had the least of his share",
}
RETRY_WORDS: Mapping[str, str] = {
    "recorded": "as it was",
    "never": "no failure is retried",
    "always:3": "each failure, up to 3 times",
    "oracle": "exactly those that heal",
    "predicted": "those that a classifier takes for such",
    "service": "as this service decides",
}
FAILURE_WORDS: Mapping[str, str] = {
    "recorded": "those of the trace",
    "none": "nothing fails",
    "philly": "drawn as in Philly's study",
    "nodes": "those of the trace, and faults of nodes",
    "philly+nodes": "Philly's, and faults of nodes",
}
PLACEMENT_WORDS: Mapping[str, str] = {
    "count": "GPUs are only counted",
    "first-fit": "the first nodes with room",
    "best-fit": "the fullest nodes with room",
    "consolidate": "on as few nodes as can be (Helios)",
    "ladder": "near together, then anywhere (Philly)",
    "spread-ladder": "the same, in the emptiest racks first",
    "skew": "together where the model needs it (Tiresias)",
    "random": "any nodes",
}
PICTURE_WORDS: Mapping[str, tuple[str, str]] = {
    "completion": ("Completion times", "For each time, the share of the jobs that took no longer."),
    "waits": ("Waits by size", "Mean time from submit to first start."),
    "use": ("GPUs in use over time", "Share of all GPUs that jobs held."),
    "gantt": ("Who ran when", "Of jobs that waited longest, those that held the most GPU time, one a line."),
}
USUAL = ("fifo", "srtf", "las-2d")


@router.get("/whatif")
def whatif_page(
    request: Request,
    web: Here,
    identity: Viewer,
    like: Annotated[str, Query(max_length=16, description="A comparison whose settings are to be changed")] = "",
) -> Response:
    """The form, and the comparisons that are kept."""
    bench = web.whatif
    if bench is None:
        return page(request, web, "whatif_off", "What if")
    rows = listed(bench, identity)
    if is_htmx(request):  # the form stays as its reader left it
        return page(request, web, "whatif", "What if", rows=rows)
    spec = history.cluster_spec(web.reader)
    return page(
        request,
        web,
        "whatif",
        "What if",
        rows=rows,
        extent=history.extent(web.reader),
        given=_given(web, identity, like, spec),
        spec=spec,
        policies=[(name, POLICY_WORDS.get(name, "")) for name in policy_names()],
        retries=[(name, RETRY_WORDS.get(name, "")) for name in RETRY_NAMES],
        placements=[(name, PLACEMENT_WORDS.get(name, "")) for name in PLACEMENT_NAMES],
        failures=[(name, FAILURE_WORDS.get(name, "")) for name in FAILURE_NAMES],
        formats=[(form.name, form.about) for form in FORMATS.values()],
        upload_mib=bench.settings.upload_mib,
        max_seeds=MAX_SEEDS,
        missing=[module for module in SIM if find_spec(module) is None],
    )


@router.get("/whatif/{comparison_id}")
def comparison_page(request: Request, web: Here, identity: Viewer, comparison_id: ComparisonId) -> Response:
    """One comparison: how far it is, or what came of it."""
    bench = bench_of(web)
    found = item(bench, bench.find(comparison_id, identity))
    asked = found.ask
    return page(
        request,
        web,
        "comparison",
        f"What if: {', '.join(asked.policies)}",
        found=found,
        figures=found.summary.compared if found.summary else [],
        several=len(asked.retries) > 1,
        pictures=[(name, *PICTURE_WORDS[name]) for name in found.summary.pictures] if found.summary else [],
        answers=f"/api/v1/whatif/comparisons/{found.id}",
        command=command(asked),
    )


@router.post("/do/whatif")
def ask(
    request: Request,
    web: Here,
    identity: Viewer,
    cluster: Annotated[str, Form(max_length=400)],
    policy: Annotated[list[str] | None, Form()] = None,
    retry: Annotated[list[str] | None, Form()] = None,
    source: Annotated[str, Form(max_length=20)] = "history",
    upload: Annotated[str, Form(max_length=40)] = "",
    rates: Annotated[str, Form(max_length=40)] = "",
    format: Annotated[str, Form(max_length=40)] = "",
    placement: Annotated[str, Form(max_length=40)] = "count",
    failures: Annotated[str, Form(max_length=40)] = "recorded",
    load: Annotated[str, Form(max_length=20)] = "",
    seeds: Annotated[str, Form(max_length=20)] = "1",
    skip_bad: Annotated[bool, Form()] = False,
) -> Response:
    """Ask for a comparison, and go where it is shown."""
    if source == "upload" and not upload:
        raise InputError("trace", "no file was sent", "Choose a trace; sending it needs scripts, or the API")
    sent = {"upload": upload, "rates": rates or None, "format": format or None} if source == "upload" else {}
    further = {"load": load or None, "placement": placement, "failures": failures, "seeds": seeds or 1}
    try:
        asked = Ask.model_validate(
            {"cluster": cluster, "policies": policy or [], "retries": retry or [], "skip_bad": skip_bad}
            | sent
            | further
        )
    except ValidationError as err:
        first = err.errors(include_url=False, include_input=False)[0]
        raise InputError(str(first["loc"][0]), first["msg"].lower(), "Change it, and ask again") from err
    to = f"/whatif/{put(web, identity, asked, None).id}"
    if is_htmx(request):
        return Response(status_code=204, headers={"HX-Redirect": to})
    return RedirectResponse(to, 303)


@router.post("/do/whatif/{comparison_id}/cancel")
def cancel(request: Request, web: Here, identity: Viewer, comparison_id: ComparisonId) -> Response:
    """End a comparison that waits or runs."""
    bench_of(web).cancel(comparison_id, identity)
    return done(request, "Cancelled")


@router.post("/do/whatif/{comparison_id}/remove")
def remove(request: Request, web: Here, identity: Viewer, comparison_id: ComparisonId) -> Response:
    """Forget a comparison that is over."""
    bench_of(web).remove(comparison_id, identity)
    if is_htmx(request):
        return Response(status_code=204, headers={"HX-Redirect": "/whatif"})
    return RedirectResponse("/whatif", 303)


def command(asked: Ask) -> str:
    """What asks the same at a terminal.

    >>> command(Ask(cluster="4x8", policies=("fifo", "srtf"), load=0.8))
    'perdure whatif TRACE --cluster 4x8 --policy fifo,srtf --load 0.8'
    """
    usual = Ask(cluster=asked.cluster, policies=asked.policies)
    options = {
        "--placement": (asked.placement, usual.placement),
        "--retry": (",".join(asked.retries), ",".join(usual.retries)),
        "--failures": (asked.failures, usual.failures),
        "--load": (asked.load, usual.load),
        "--seeds": (asked.seeds, usual.seeds),
        "--format": (asked.format, usual.format),
    }
    words = [f"perdure whatif TRACE --cluster {asked.cluster} --policy {','.join(asked.policies)}"]
    words += [f"{option} {value}" for option, (value, built_in) in options.items() if value != built_in]
    return " ".join([*words, *(["--skip-bad"] if asked.skip_bad else [])])


def _given(web: Web, identity: Identity, like: str, spec: str) -> Ask:
    """What the form holds at first: the settings of an earlier comparison, or the usual ones."""
    known: dict[str, Comparison] = {}
    if like and web.whatif is not None:
        known = {each.id: each for each in web.whatif.visible_to(identity)}
    if found := known.get(like):
        return found.ask
    return Ask(cluster=spec, policies=USUAL)
