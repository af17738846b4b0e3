"""Whether what failed is a service outside of all nodes: then no node did anything wrong, and none is left out.

Where a service answered, even with an error, the node's network had worked: an HTTP status, a database's refusal, a
controller in standby. So with names that everybody on a cluster asks: package indexes, hubs, registries, trackers.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.triage.evidence.frames import companions
from perdure.triage.evidence.matching import Hit
from perdure.triage.grammar import PASSING
from perdure.triage.text.patterns import compiled
from perdure.triage.verdict import Bound

_OF_SERVICES = frozenset({"net", "obj_store", "lock", "launcher", "auth", "k8s_infra"})
"""Wider categories of causes that a service's word may stand for."""

_ANSWERING = frozenset({"http-status", "object-store", "database", "hub", "pip", "conda", "git"})
"""Families of the catalogue whose codes a service itself answers with, or a client that asks public ones."""

_LOCK = "lock"
_NO_LOCKS = r"(?i)no locks available|\bENOLCK\b|\[Errno 37\]"
"""What the node's own client of a file system says that cannot make one."""

_STATUS = (
    r"(?i)\b[45]\d\d (?:Client|Server) Error\b|\bHTTP(?:/[\d.]+| ?Error| status(?: code)?| response(?: code)?| "
    r"code)?:? ?\(?[45]\d\d\b"
    r"|\bstatus(?:[ _-]?code)?['\"]?(?: of| was| is)?\s*[:=(]?\s*[45]\d\d\b|<Response \[[45]\d\d\]>"
    r"|returned (?:error|status|code|http)\W{1,3}[45]\d\d\b|\b(?:error|code|got|received|response)[:=]? "
    r"\(?[45]\d\d\b(?:\)|:| |,|$)"
    r"|\b(?:408 Request Time-?out|409 Conflict|425 Too Early|429 Too Many|500 Internal|502 Bad|503 Service|504 "
    r"Gateway|52\d \w)"
    r"|\btoomanyrequests\b|pull rate limit|RESOURCE_EXHAUSTED: Quota"
)
"""What a web service, a registry or a gateway answers."""

_OF_DATABASE = (
    r"(?i)\b(?:psycopg\w*|asyncpg|sqlalchemy|pymysql|MySQLdb|mysql\.connector|mariadb|pymongo|redis|cassandra"
    r"|cx_Oracle|oracledb"
    r"|pyodbc|sqlite3|clickhouse\w*|elasticsearch|etcd3?|consul|kazoo|neo4j|duckdb|slurmdbd|SQLSTATE|ORA-\d{5})\b"
)
_OF_PUBLIC = (
    r"(?i)\b(?:[\w-]+\.)*(?:huggingface\.co|hf\.co|hf-mirror\.com|modelscope\.cn|kaggle\.com|zenodo\.org"
    r"|pypi\.org|pythonhosted\.org"
    r"|pytorch\.org|fbaipublicfiles\.com|anaconda\.(?:org|com)|prefix\.dev|docker\.(?:io|com)|ghcr\.io|quay\.io"
    r"|nvcr\.io|gcr\.io"
    r"|pkg\.dev|mcr\.microsoft\.com|github(?:usercontent)?\.com|gitlab\.com|bitbucket\.org|wandb\.ai|comet\.com"
    r"|neptune\.ai"
    r"|amazonaws\.com|googleapis\.com|windows\.net|azure\.com|openai\.com|anthropic\.com|r-project\.org"
    r"|rubygems\.org|npmjs\.org"
    r"|crates\.io|maven\.org|bioconductor\.org|ubuntu\.com|debian\.org|nvidia\.com|tensorflow\.org"
    r"|ncbi\.nlm\.nih\.gov|ebi\.ac\.uk)\b"
)
_OF_TOOL = (
    r"\bpip\._|\b(?i:pip|pip3|uv|conda|mamba|micromamba|poetry|apt-get|apt|npm|cargo|docker|podman|enroot|pyxis"
    r"|git-lfs|wandb|mlflow|comet_ml|neptune)\b(?:\._vendor|\.\w+|:| )"
)
_OF_NODE = r"(?i)no route to host|host is down|network is down|\b(?:ib|eth|ens|enp|bond)\d"
"""What the node's own network says of itself."""


def outside_of_nodes(primary: Hit, hits: Sequence[Hit]) -> Hit:
    """`primary`, bound to whoever asks where a service outside of all nodes is what failed."""
    cause = primary.cause
    if cause.wider not in _OF_SERVICES or cause.bound is Bound.CALLER or cause.hard:
        return primary
    line = primary.text.encode()
    chain = [line, *(frame.text.encode() for frame in companions(primary)), *_same_run(primary, hits)]
    if any(compiled(_OF_NODE).search(each) for each in chain):
        return primary
    if cause.wider == _LOCK and cause.p_transient >= PASSING and not compiled(_NO_LOCKS).search(line):
        return replace(primary, cause=replace(cause, bound=Bound.CALLER))
    if cause.name in _ANSWERING and cause.bound is Bound.SERVICE:
        return replace(primary, cause=replace(cause, bound=Bound.CALLER))
    of_net = cause.wider in ("net", "obj_store")
    names = (_STATUS, _OF_DATABASE, _OF_PUBLIC, _OF_TOOL) if of_net else (_STATUS,)
    if any(compiled(pattern).search(each) for pattern in names for each in chain):
        return replace(primary, cause=replace(cause, bound=Bound.CALLER))
    return primary


def _same_run(primary: Hit, hits: Sequence[Hit]) -> list[bytes]:
    """Lines of the same kind that the task wrote beside it: the exceptions that one was raised from another of."""
    return [
        hit.text.encode()
        for hit in hits
        if hit.run == primary.run and hit.rank == primary.rank and hit.cause.wider == primary.cause.wider
    ]
