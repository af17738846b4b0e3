"""How values are said to a person: states, causes, instants, amounts. Pure."""

from __future__ import annotations

import datetime as dt
import math
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from perdure.backends.registry import BACKENDS
from perdure.model.actions import KINDS, Action, Cancel, Hold, Release, Undrain

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
MAX_SHOWN = 20_000  # characters of one value; logs have their own bound
MAX_JOB_NAME = 80
_BETWEEN_BACKTICKS = re.compile(r"(`{1,2})([^`]+)\1")


@dataclass(frozen=True, slots=True)
class Badge:
    """A state in words, with an icon and a tone: never by colour alone."""

    text: str
    icon: str
    tone: str  # "good", "bad", "warn", "busy", "probe", "idle"


_JOB = {
    "pending": Badge("Waiting", "clock", "idle"),
    "held": Badge("Held", "pause", "warn"),
    "running": Badge("Running", "play", "busy"),
    "suspended": Badge("Suspended", "pause", "warn"),
    "completed": Badge("Completed", "check", "good"),
    "failed": Badge("Failed", "cross", "bad"),
    "cancelled": Badge("Cancelled", "slash", "idle"),
}
_ATTEMPT = {
    **_JOB,
    "timeout": Badge("Walltime reached", "clock", "bad"),
    "out_of_memory": Badge("Out of memory", "cross", "bad"),
    "node_fail": Badge("Node failed", "cross", "bad"),
    "boot_fail": Badge("Boot failed", "cross", "bad"),
    "launch_failed": Badge("Launch failed", "cross", "bad"),
    "preempted": Badge("Preempted", "swap", "warn"),
    "requeued": Badge("Requeued", "retry", "warn"),
    "deadline": Badge("Deadline passed", "clock", "bad"),
    "lost": Badge("Lost", "question", "bad"),
}
_NODE = {
    "up": Badge("Up", "check", "good"),
    "draining": Badge("Draining", "pause", "warn"),
    "drained": Badge("Drained", "pause", "warn"),
    "down": Badge("Down", "cross", "bad"),
    "unknown": Badge("Unknown", "question", "idle"),
}
_ACTION = {
    "planned": Badge("Planned", "clock", "busy"),
    "started": Badge("Under way", "play", "busy"),
    "done": Badge("Done", "check", "good"),
    "refused": Badge("Refused", "cross", "bad"),
    "superseded": Badge("Superseded", "swap", "idle"),
    "expired": Badge("Expired", "clock", "idle"),
    "shadow": Badge("Shadow only", "eye", "probe"),
    "withheld": Badge("Withheld", "hand", "warn"),
}
_DECISION = {
    "retry": Badge("Retry", "retry", "good"),
    "probe": Badge("Probing retry", "probe", "probe"),
    "stop": Badge("Stop", "stop", "bad"),
    "": Badge("Undecided", "clock", "idle"),
}
_LABEL = {
    "deterministic": Badge("Would fail again", "stop", "bad"),
    "transient": Badge("Would likely pass", "retry", "good"),
    "unsure": Badge("Unsure", "question", "probe"),
    "cancelled": Badge("Cancelled", "slash", "idle"),
}
_EXCEPTION = {
    "raised": Badge("Being judged", "clock", "busy"),
    "in_chain": Badge("In the chain", "chain", "busy"),
    "handled": Badge("Being recovered", "retry", "busy"),
    "clearing": Badge("Releasing jobs", "swap", "busy"),
    "recovered": Badge("Recovered", "check", "good"),
    "failed_again": Badge("Failed again", "cross", "idle"),
    "stopped": Badge("Stopped", "stop", "bad"),
    "escalated": Badge("Needs a person", "warn", "warn"),
    "withdrawn": Badge("Withdrawn", "slash", "idle"),
    "closed": Badge("Closed by a person", "check", "idle"),
    "expired": Badge("Expired", "clock", "idle"),
}
_STANDING = {**_EXCEPTION, "handled": Badge("Owned", "check", "busy")}  # of all, also of what is not a failure of a job
_ANSWER = {
    "handled": Badge("Took it", "check", "good"),
    "annotated": Badge("Annotated", "file", "probe"),
    "declined": Badge("Declined", "slash", "idle"),
    "deferred": Badge("Put it off", "clock", "warn"),
    "rejected": Badge("Rejected", "cross", "bad"),
    "": Badge("Is asked", "question", "busy"),
}
_SUSPECT = {
    "hard": Badge("Down", "cross", "bad"),
    "gray": Badge("Gray", "warn", "warn"),
    "partial": Badge("In part", "slash", "warn"),
}
_COMPARISON = {
    "waiting": Badge("Waiting", "clock", "idle"),
    "running": Badge("Running", "play", "busy"),
    "done": Badge("Done", "check", "good"),
    "failed": Badge("Failed", "cross", "bad"),
    "cancelled": Badge("Cancelled", "slash", "idle"),
    "broken_off": Badge("Broken off", "warn", "warn"),
}
_MESSAGE = {
    "gathering": Badge("Gathering", "clock", "idle"),
    "on_its_way": Badge("To be sent", "retry", "busy"),
    "sent": Badge("Sent", "check", "good"),
    "given_up": Badge("Not delivered", "cross", "bad"),
}
_CLUSTER = {
    "watched": Badge("Watched", "eye", "good"),
    "silent": Badge("Manager silent", "warn", "bad"),
    "late": Badge("Not looked at", "clock", "warn"),
    "free": Badge("Nobody serves it", "cross", "bad"),
}
BADGES = {
    "job": _JOB,
    "attempt": _ATTEMPT,
    "node": _NODE,
    "action": _ACTION,
    "decision": _DECISION,
    "label": _LABEL,
    "exception": _EXCEPTION,
    "standing": _STANDING,
    "answer": _ANSWER,
    "comparison": _COMPARISON,
    "message": _MESSAGE,
    "suspect": _SUSPECT,
    "cluster": _CLUSTER,
}

_CAUSES = {
    "api": "Wrong call",
    "assertion": "Assertion",
    "auth": "Login refused",
    "autograd": "Autograd",
    "ckpt": "Bad checkpoint",
    "config": "Bad configuration",
    "cuda_env": "CUDA set-up",
    "data": "Bad input data",
    "device": "Wrong device",
    "disk_quota": "Disk or quota full",
    "dist_config": "Distributed set-up",
    "dtype": "Wrong number type",
    "env": "Environment set-up",
    "env_limit": "Environment limit",
    "forgotten": "Start forgotten",
    "fs": "File system",
    "gpu_busy": "GPU taken",
    "gpu_hw": "GPU hardware",
    "gpu_oom": "GPU out of memory",
    "hang": "Hang",
    "host_oom": "Host out of memory",
    "import": "Missing module",
    "index": "Index or key",
    "k8s_evict": "Pod evicted",
    "k8s_infra": "Kubernetes",
    "launcher": "Launcher",
    "lock": "Lock held",
    "missing_file": "Missing file",
    "killed": "Killed",
    "native_crash": "Native crash",
    "nccl_comm": "NCCL communication",
    "nccl_timeout": "NCCL timeout",
    "net": "Network",
    "node_loss": "Node lost",
    "numeric": "NaN or overflow",
    "obj_store": "Remote service",
    "permission": "Permission",
    "node_disk": "Node's disk full",
    "port_busy": "Port taken",
    "preempt": "Preempted",
    "quota": "No balance",
    "ray_node": "Ray node",
    "rdzv_store": "Rendezvous",
    "shape": "Shape mismatch",
    "syntax": "Syntax or name error",
    "time_limit": "Walltime",
    "tracker": "Experiment tracker",
    "unknown": "Unknown",
    "version": "Wrong version",
}
_FAULTS = {
    "app": "Program failed",
    "app.shape": "Program has a shape bug",
    "gpu": "GPU fault",
    "job.move": "Told to move its output",
    "job.pause": "Told to pause",
    "resource.needed": "Jobs came that need it",
    "job.throttle": "Told to slow down",
    "launcher": "Launch failed",
    "launcher.permanent": "Launch can only fail",
    "licence": "Licence missing",
    "licence.restored": "Licence back",
    "network": "Network fault",
    "network.restored": "Network back",
    "node": "Node fault",
    "node.failure": "Node failed",
    "power": "Power fault",
    "power.restored": "Power back",
    "process": "Process failed",
    "site": "Of the site's own",
    "storage": "Storage fault",
    "storage.full": "Disk full",
    "storage.quota": "Quota runs out",
    "storage.quota.over": "Quota exceeded",
    "storage.restored": "Storage back",
    "suspect": "Suspect named",
}
_COMPONENTS = {
    "resource_manager": "Resource manager",
    "job": "Job",
    "workflow": "Workflow",
    "scheduler": "Perdure",
}


def badge(of: str, state: str) -> Badge:
    """The badge of a state; an unknown one is shown by its own name."""
    return BADGES[of].get(state) or Badge(_plainly(state), "question", "idle")


def cause(category: str) -> str:
    return _CAUSES.get(category) or _plainly(category)


def fault(dotted: str) -> str:
    """An exception's type in words; the part that there are no words for stays as it is.

    >>> fault("gpu.xid79"), fault("storage.quota.over"), fault("job.shape")
    ('GPU fault: xid79', 'Quota exceeded', 'Shape mismatch')
    """
    parts = dotted.split(".")
    for n in range(len(parts), 0, -1):
        if words := _FAULTS.get(".".join(parts[:n])):
            return ": ".join(filter(None, (words, ".".join(parts[n:]))))
    return cause(dotted.partition(".")[2] or dotted)  # of a failed attempt: its type names the cause


def severity(number: int) -> str:
    """Flux's severities: 0 ends the job, 7 is least."""
    return {0: "severity 0, fatal", 7: "severity 7, least"}.get(number, f"severity {number}")


def component(name: str) -> str:
    return _COMPONENTS.get(name) or _plainly(name)


def backend(name: str) -> str:
    return BACKENDS[name].label if name in BACKENDS else name


def undo_question(inverse: Action) -> str:
    """What is asked before an action is taken back: what is done then, and to what."""
    match inverse:
        case Undrain(node=node):
            return f"Return {node} to service?"
        case Release(attempt=attempt):
            return f"Let job {attempt.job_id} start?"
        case Hold(attempt=attempt):
            return f"Hold job {attempt.job_id} back?"
        case Cancel(attempt=attempt):
            return f"Take job {attempt.job_id} out of the queue? It is cancelled."
    return f"{inverse.label}?"


def kind(name: str) -> str:
    return KINDS[name].label if name in KINDS else _plainly(name)


def _plainly(word: str) -> str:
    return word.replace("_", " ").capitalize() or "Unknown"


# -- amounts


def ago(then: float | None, now: float) -> str:
    """How long since, or until, in one unit.

    >>> ago(100, 103), ago(100, 400), ago(400, 100), ago(None, 0)
    ('3 s ago', '5 min ago', 'in 5 min', 'never')
    """
    if then is None or not math.isfinite(then):
        return "never"
    apart = now - then
    if abs(apart) < 1:
        return "just now"
    return f"{span(apart)} ago" if apart > 0 else f"in {span(-apart)}"


def span(seconds: float) -> str:
    """A stretch of time, in its largest unit.

    >>> span(59), span(3000), span(7200), span(3 * 86400), span(-1e-9)
    ('59 s', '50 min', '2 h', '3 d', '0 s')
    """
    if abs(seconds) < 0.5:
        return "0 s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < HOUR_S:
        return f"{seconds / 60:.0f} min"
    number, unit = (seconds / HOUR_S, "h") if seconds < 2 * DAY_S else (seconds / DAY_S, "d")
    return f"{number:.1f}".removesuffix(".0") + f" {unit}"


def instant(seconds: float | None) -> str:
    """Date, time and zone; the same everywhere in words that sort."""
    moment = _moment(seconds)
    return moment.strftime("%Y-%m-%d %H:%M:%S %Z") if moment else "unknown"


def iso(seconds: float | None) -> str:
    moment = _moment(seconds)
    return moment.isoformat(timespec="seconds") if moment else ""


def clock(seconds: float | None) -> str:
    moment = _moment(seconds)
    return moment.strftime("%H:%M:%S") if moment else "?"


def about(seconds: float, now: float) -> str:
    """The minute of an instant, with its day where that is another one than now's."""
    then, today = _moment(seconds), _moment(now)
    if then is None or today is None:
        return "?"
    return then.strftime("%H:%M" if then.date() == today.date() else "%b %d %H:%M")


def zone(seconds: float | None) -> str:
    """The time zone of this machine at an instant: "UTC", or "CET (UTC+01:00)"."""
    moment = _moment(seconds)
    if moment is None:
        return "unknown"
    name, offset = moment.strftime("%Z"), moment.isoformat(timespec="seconds")[-6:]
    return name if name == "UTC" else f"{name} (UTC{offset})"


def _moment(seconds: float | None) -> dt.datetime | None:
    try:
        return None if seconds is None else dt.datetime.fromtimestamp(seconds).astimezone()
    except (OverflowError, OSError, ValueError):
        return None


def amount(hours: float) -> str:
    """GPU-hours with as many digits as mean something.

    >>> amount(0), amount(0.004), amount(1.26), amount(340.4), amount(12345)
    ('0', '<0.01', '1.26', '340', '12,345')
    """
    if hours == 0:
        return "0"
    if abs(hours) < 0.01:
        return "<0.01"
    return f"{hours:.2f}" if abs(hours) < 10 else f"{hours:.1f}" if abs(hours) < 100 else f"{hours:,.0f}"


def percent(share: float) -> str:
    return f"{share:.1%}"


def change(share: float) -> str:
    """By how much more or less.

    >>> change(-0.234), change(0.031), change(-0.998), change(0.0004), change(12.5)
    ('−23%', '+3.1%', '−99.8%', '±0%', '+1250%')
    """
    if abs(share) < 0.0005:
        return "±0%"
    tells_more = abs(share) < 0.0995 or -1 < share < -0.985
    return f"{share:+.{1 if tells_more else 0}%}".replace("-", "−")


def whole(number: int) -> str:
    return f"{number:,}"


def sentence(reason: str) -> tuple[str, str]:
    """A decision's reason: what it says, and the numbers that weighed.

    >>> sentence("it would fail again; expected cost 2 GPU-h if retried, 1 if stopped (p = 0.1)")
    ('It would fail again', 'Expected cost 2 GPU-h if retried, 1 if stopped (p = 0.1)')
    """
    words, _, numbers = reason.partition("; expected cost ")
    return capital(words), f"Expected cost {numbers}" if numbers else ""


def unbroken(text: str) -> Markup:
    """`text`, escaped, with each equation in one line.

    >>> unbroken("1 if <stopped> (p = 0.1)")
    Markup('1 if &lt;stopped&gt; (p&nbsp;=&nbsp;0.1)')
    """
    return Markup(str(escape(shown(text))).replace(" = ", "&nbsp;=&nbsp;"))  # noqa: S704  (escaped here)


def marked(text: str) -> Markup:
    """`text`, escaped, with what is between backticks as code.

    >>> marked("``GET /?a=<b>``, then `seq`")
    Markup('<code>GET /?a=&lt;b&gt;</code>, then <code>seq</code>')
    """
    return Markup(_BETWEEN_BACKTICKS.sub(r"<code>\2</code>", str(escape(shown(text)))))  # noqa: S704  (escaped here)


def job_name(name: str) -> str:
    """A job's name as pages show it: of a long one the begin. Files to download and the API have it whole.

    >>> job_name("sweep-" * 20)
    'sweep-sweep-sweep-sweep-sweep-sweep-sweep-sweep-sweep-sweep-sweep-sweep-sweep-s…'
    """
    return name if len(name) <= MAX_JOB_NAME else f"{name[: MAX_JOB_NAME - 1]}…"


def capital(text: str) -> str:
    """`text` with a capital first letter, unless its first word is a name: those of nodes and files keep their case.

    >>> capital("the walltime was reached"), capital("gpu03 failed"), capital("n-a/b: lost"), capital("it's gone")
    ('The walltime was reached', 'gpu03 failed', 'n-a/b: lost', "It's gone")
    """
    first = text.partition(" ")[0].rstrip(",;:.!?")
    plain = first.replace("'", "").replace("-", "x" if "/" not in first else "/").isalpha()
    return text[:1].upper() + text[1:] if plain else text


# -- text of others


_PICTURES = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {0x7F: 0x2421}


def shown(value: Any) -> Any:
    """What a template may print: text without anything invisible that moves, hides or reorders what is around it.

    Controls become their pictures; bidirectional marks, other format characters, lone surrogates and C1 controls
    become U+FFFD. Escaping for HTML comes after this.

    >>> shown("a\\x1b[31mb\\u202ec")
    'a␛[31mb�c'
    """
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    if len(value) > MAX_SHOWN:
        value = f"{value[:MAX_SHOWN]} …"
    return visible(value)


def visible(text: str) -> str:
    """`text` with every character that cannot be seen made so."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _seen(c) for c in text)


def _seen(char: str) -> str:
    if ord(char) in _PICTURES:
        return chr(_PICTURES[ord(char)])
    return " " if unicodedata.category(char) in ("Zs", "Zl", "Zp") else "\N{REPLACEMENT CHARACTER}"
