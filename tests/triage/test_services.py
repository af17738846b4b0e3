"""A service outside of all nodes that fails takes no node out of a job's reach; a node's own network does."""

import pytest

from perdure.triage.judge import judge
from perdure.triage.verdict import Bound, Label

OUTSIDE = {
    "status of a hub": "huggingface_hub.errors.HfHubHTTPError: 503 Server Error: Service Unavailable for url: "
    "https://h.example/m",
    "status of any service": "urllib.error.HTTPError: HTTP Error 502: Bad Gateway",
    "status, as Go says": "Error: unexpected status code 504 Gateway Timeout",
    "status, as git says": "fatal: unable to access 'https://git.example/a': The requested URL returned error: 503",
    "status, as curl says": "curl: (22) The requested URL returned error: 500",
    "status, as JavaScript says": "AxiosError: Request failed with status code 503",
    "a lock of a database": "sqlalchemy.exc.OperationalError: (sqlite3.OperationalError) database is locked",
    "a lock of git": "fatal: Unable to create '/p/x/.git/index.lock': File exists.",
    "a lock of a cache": "filelock._error.Timeout: The file lock '/c/m.lock' could not be acquired.",
    "the controller": "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    "the controller's other half": "scontrol: error: Slurm backup controller in standby mode",
    "PostgreSQL": "psycopg2.OperationalError: server closed the connection unexpectedly",
    "PostgreSQL, full": "asyncpg.exceptions.TooManyConnectionsError: sorry, too many clients already",
    "Redis": "redis.exceptions.ConnectionError: Error 111 connecting to q1:6379. Connection refused.",
    "MySQL": "pymysql.err.OperationalError: (2013, 'Lost connection to MySQL server during query')",
    "wandb": "wandb.errors.CommError: Run initialization has timed out after 90.0 sec.",
    "wandb, in a chain": "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='api.wandb.ai', port=443): "
    "Read timed out.",
    "pip": "pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='pip.lan', port=443): Read "
    "timed out.",
    "conda": "CondaHTTPError: HTTP 000 CONNECTION FAILED for url <https://conda.anaconda.org/x>",
    "Docker's limit": "docker: Error response from daemon: toomanyrequests: You have reached your pull rate limit.",
    "an object store": 'botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: "https://b.s3.amazonaws.com/x"',
}
OF_NODES = {
    "a peer": "ConnectionResetError: [Errno 104] Connection reset by peer",
    "a rank": "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.",
    "the fabric": "mlx5_0: transport retry counter exceeded",
    "a route": "OSError: [Errno 113] No route to host",
    "an address of the cluster": "ConnectionRefusedError: [Errno 111] Connection refused: ('10.1.0.7', 29500)",
    "a client of NFS": "flock: cannot open lock file /nfs/x: No locks available",
    "a port of a status": "ConnectionRefusedError: [Errno 111] Connection refused: ('n503', 50300)",
}


@pytest.mark.parametrize("service", OUTSIDE)
def test_a_service_is_no_fault_of_a_node(service: str) -> None:
    verdict = judge(f"step 7 loss 0.3\n{OUTSIDE[service]}\n".encode())
    assert verdict.bound is Bound.CALLER
    assert verdict.label is not Label.DETERMINISTIC


@pytest.mark.parametrize("trouble", OF_NODES)
def test_what_may_be_the_node_is_left_to_it(trouble: str) -> None:
    assert judge(f"step 7 loss 0.3\n{OF_NODES[trouble]}\n".encode()).bound is not Bound.CALLER


@pytest.mark.parametrize(
    ("told", "wait_s"),
    [
        ("Retry-After: 1200", 1200.0),
        ("{'retry-after': '95'}", 95.0),
        ("(Retry after 236 seconds)", 236.0),
        ("Please try again in 6m0s.", 360.0),
        ('"retryDelay": "410s"', 410.0),
        ("retry-after-ms: 90000", 90.0),
        ("Please wait 5 minutes before trying again", 300.0),
        ("Rate limit resets in 75 seconds", 75.0),
        ("Retry-After: 9999999", 60.0),  # no time that anybody means
        ("Retry-After: Wed, 21 Oct 2026 07:28:00 GMT", 60.0),  # by a clock that is not known
        ("try again in 3 s", 60.0),  # less than a service needs
        ("attempt 3 of 900", 60.0),
    ],
)
def test_a_retry_waits_as_long_as_the_service_asks(told: str, wait_s: float) -> None:
    error = "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://h.example/m"
    assert judge(f"step 7\n{error}\n{told}\n".encode()).wait_s == wait_s
    assert judge(f"step 7\n{error} {told}\n".encode()).wait_s == wait_s


def test_what_is_no_service_asks_for_nothing() -> None:
    assert judge(b"torch.cuda.OutOfMemoryError: CUDA out of memory. try again in 900 s\n").wait_s == 0.0
