"""What if: ask how other policies would have scheduled the same jobs, and see what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from shlex import quote
from typing import Annotated, Any

from fastapi import APIRouter, Form, Path, Query, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from perdure.errors import InputError
from perdure.installation import install_command
from perdure.scheduling.elastic_policies import ELASTIC
from perdure.scheduling.policies import POLICIES
from perdure.service.access.auth import Identity
from perdure.service.store.queries import history
from perdure.service.web.api.models import ComparisonItem
from perdure.service.web.api.whatif import SIM, ComparisonId, comparison_queue_of, item, listed, put
from perdure.service.web.pages.listing import Columns, ListingAddress, Wanted, arranged, at, csv_file, known_value
from perdure.service.web.pages.policies import policy_title
from perdure.service.web.pages.render import done, is_htmx, page
from perdure.service.web.state import Here, Viewer, WebState
from perdure.service.whatif.comparison import Comparison, Figures
from perdure.service.whatif.question import MAX_SEEDS, PLACEMENT_NAMES, ComparisonQuestion, needs_profiles
from perdure.simulation.failures import FAILURE_WORDS
from perdure.simulation.restart_cost import PUBLISHED
from perdure.simulation.retries import RETRY_POLICIES
from perdure.traces.read import FORMATS

router = APIRouter()

PLACEMENT_WORDS: Mapping[str, str] = {
    "count": "GPUs are only counted",
    "first-fit": "first fit",
    "best-fit": "best fit: the fullest nodes with room",
    "consolidate": "on as few nodes as possible (Helios)",
    "ladder": "near together first, relaxed while a job waits (Philly)",
    "spread-ladder": "the same, emptiest racks first",
    "skew": "consolidated where the model needs it (Tiresias)",
    "random": "any nodes",
}
PICTURE_WORDS: Mapping[str, tuple[str, str]] = {
    "changes": (
        "Who gains and who loses",
        "The change of the mean completion time under the best policy against the first, with its interval at 95%.",
    ),
    "completion": (
        "Completion times",
        "The share of the jobs that took no longer, under the first policy; then how many times as long the others "
        "take until the same share has ended.",
    ),
    "waits": ("Waits by size", "Mean time from submit to first start."),
    "use": ("GPUs in use over time", "Share of all GPUs that jobs held; below, how much more it is under the others."),
    "rho": (
        "How fair it was",
        "For each rho, the share of the jobs whose rho was no larger; above 1 is worse than its share.",
    ),
    "allocation": (
        "GPUs given, over time",
        "Share of all GPUs that jobs were given, by types, under the first policies; two on the same GPUs count once.",
    ),
    "gantt": ("Who ran when", "Of jobs that waited longest, those that held the most GPU time, one a line."),
    "recorded": (
        "Waits as recorded",
        "For each time, the share of the jobs that waited no longer, in the runs and as it was. Where a policy that is "
        "meant to be the recorded one lies apart, the simulation does not describe this cluster.",
    ),
}
USUAL = ("fifo", "srtf", "las-2d")

COLUMNS: Columns[ComparisonItem] = (
    ("id", lambda row: row.id),
    ("policies", lambda row: row.ask.policies),
    ("state", lambda row: row.stage.value),
    ("jobs", lambda row: row.source),
    ("cluster", lambda row: row.ask.cluster),
    ("by", lambda row: row.owner),
    ("asked", lambda row: at(row.created_s)),
)
SORTED_BY: Mapping[str, Callable[[ComparisonItem], Any]] = {
    "state": lambda row: row.stage.value,
    "jobs": lambda row: row.source,
    "cluster": lambda row: row.ask.cluster,
    "by": lambda row: row.owner,
    "asked": lambda row: row.created_s,
}
FIGURES: Columns[Figures] = (
    ("policy", lambda row: row.policy),
    ("retry", lambda row: row.retry),
    ("finished", lambda row: row.finished),
    ("completion_mean_s", lambda row: row.jct_s.mean),
    ("completion_p50_s", lambda row: row.jct_s.p50),
    ("completion_p90_s", lambda row: row.jct_s.p90),
    ("completion_p99_s", lambda row: row.jct_s.p99),
    ("completion_change", lambda row: row.jct_change),
    ("wait_mean_s", lambda row: row.wait_s.mean),
    ("wait_change", lambda row: row.wait_change),
    ("makespan_s", lambda row: row.makespan_s),
    ("gpus_used_share", lambda row: row.utilisation),
    ("goodput_share", lambda row: row.goodput),
    ("wasted_gpu_h", lambda row: row.wasted_gpu_h),
    ("passed_share", lambda row: row.success_rate),
)
FIGURES_BY: Mapping[str, Callable[[Figures], Any]] = {
    "policy": lambda row: row.policy,
    "completion": lambda row: row.jct_s.mean,
    "median": lambda row: row.jct_s.p50,
    "p90": lambda row: row.jct_s.p90,
    "p99": lambda row: row.jct_s.p99,
    "wait": lambda row: row.wait_s.mean,
    "used": lambda row: row.utilisation,
    "goodput": lambda row: row.goodput,
    "wasted": lambda row: row.wasted_gpu_h,
    "passed": lambda row: row.success_rate,
}


@router.get("/whatif")
def whatif_page(
    request: Request,
    web: Here,
    identity: Viewer,
    asked: Wanted,
    like: Annotated[str, Query(max_length=16, description="A comparison whose settings are to be changed")] = "",
) -> Response:
    """The form, and the comparisons that are kept."""
    queue = web.whatif
    if queue is None:
        return page(request, web, "whatif_off", "What if")
    known_value("sort", asked.sort.removeprefix("-"), SORTED_BY)
    rows = arranged(listed(queue, identity), SORTED_BY, asked)
    if asked.is_csv:
        return csv_file("comparisons", COLUMNS, rows)
    listing = ListingAddress("/whatif", asked, {}, tuple(SORTED_BY))
    if is_htmx(request):  # the form stays as its reader left it
        return page(request, web, "whatif", "What if", rows=rows, listing=listing)
    spec = history.cluster_spec(web.reader)
    return page(
        request,
        web,
        "whatif",
        "What if",
        rows=rows,
        listing=listing,
        extent=history.extent(web.reader),
        given=_given(web, identity, like, spec),
        spec=spec,
        policies=[(name, form.title, form.chooses) for name, form in POLICIES.items()],
        planned=[(name, form.title, form.chooses) for name, form in ELASTIC.items()],
        profiles=queue.settings.profiles,
        retries=[(form.offered, form.title, form.says) for form in RETRY_POLICIES.values()],
        placements=[(name, PLACEMENT_WORDS.get(name, "")) for name in PLACEMENT_NAMES],
        failures=list(FAILURE_WORDS.items()),
        formats=[(form.name, form.about) for form in FORMATS.values()],
        upload_mib=queue.settings.upload_mib,
        max_seeds=MAX_SEEDS,
        published_cost=str(PUBLISHED),
        missing=[module for module in SIM if find_spec(module) is None],
        install=install_command("sim"),
    )


AnyId = Annotated[str, Path(max_length=200)]
"""In an address that a person may have typed: what is no id is not found, and no error of form."""


@router.get("/whatif/{comparison_id}")
def comparison_page(request: Request, web: Here, identity: Viewer, comparison_id: AnyId, wanted: Wanted) -> Response:
    """One comparison: how far it is, or its figures; these also as CSV."""
    queue = comparison_queue_of(web)
    found = item(queue, queue.find(comparison_id, identity))
    asked = found.ask
    known_value("sort", wanted.sort.removeprefix("-"), FIGURES_BY)
    figures = arranged(found.summary.compared if found.summary else [], FIGURES_BY, wanted)
    if wanted.is_csv:
        return csv_file("figures", FIGURES, figures)
    return page(
        request,
        web,
        "comparison",
        f"What if: {', '.join(map(policy_title, asked.policies))}",
        found=found,
        figures=figures,
        first=(asked.policies[0], asked.retries[0]),
        listing=ListingAddress(f"/whatif/{found.id}", wanted, {}, tuple(FIGURES_BY)),
        several=len(asked.retries) > 1,
        pictures=[(name, *PICTURE_WORDS[name]) for name in found.summary.pictures] if found.summary else [],
        answers=f"/api/v1/whatif/comparisons/{found.id}",
        command=command(asked),
        plans=needs_profiles(asked),
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
    preemption_cost: Annotated[str, Form(max_length=60)] = "",
    skip_bad: Annotated[bool, Form()] = False,
) -> Response:
    """Ask for a comparison, and go where it is shown."""
    if source == "upload" and not upload:
        raise InputError("trace", "no file was sent", "Choose a trace; sending it needs scripts, or the API")
    sent = {"upload": upload, "rates": rates or None, "format": format or None} if source == "upload" else {}
    numbers = {"load": _number(load, float), "seeds": _number(seeds, int) or 1}
    cost = {"preemption_cost": preemption_cost.strip() or None}
    further = {"placement": placement, "failures": failures, **numbers, **cost}
    try:
        asked = ComparisonQuestion.model_validate(
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


def _number(text: str, kind: type[int] | type[float]) -> int | float | str | None:
    """The number that a form's field holds, None where it is empty; a text that is not a number is refused later."""
    try:
        return kind(text) if text else None
    except ValueError:
        return text


@router.post("/do/whatif/{comparison_id}/cancel")
def cancel(request: Request, web: Here, identity: Viewer, comparison_id: ComparisonId) -> Response:
    """End a comparison that waits or runs."""
    comparison_queue_of(web).cancel(comparison_id, identity)
    return done(request, "Cancelled")


@router.post("/do/whatif/{comparison_id}/remove")
def remove(request: Request, web: Here, identity: Viewer, comparison_id: ComparisonId) -> Response:
    """Forget a comparison that is over."""
    comparison_queue_of(web).remove(comparison_id, identity)
    if is_htmx(request):
        return Response(status_code=204, headers={"HX-Redirect": "/whatif"})
    return RedirectResponse("/whatif", 303)


def command(asked: ComparisonQuestion) -> str:
    """What asks the same at a terminal.

    >>> command(ComparisonQuestion(cluster="4x8", policies=("fifo", "srtf"), load=0.8))
    'perdure whatif TRACE --cluster 4x8 --policy fifo,srtf --load 0.8'
    """
    words = ["perdure whatif elastic PROFILES TRACE" if needs_profiles(asked) else "perdure whatif TRACE"]
    for name, value in asked.options.items():
        option = f"--{name.replace('_', '-')}"
        words.append(option if value is True else f"{option} {quote(str(value))}")
    return " ".join(words)


def _given(web: WebState, identity: Identity, like: str, spec: str) -> ComparisonQuestion:
    """What the form holds at first: the settings of an earlier comparison, or the usual ones."""
    known: dict[str, Comparison] = {}
    if like and web.whatif is not None:
        known = {each.id: each for each in web.whatif.visible_to(identity)}
    if found := known.get(like):
        return found.ask
    return ComparisonQuestion(cluster=spec, policies=USUAL)
