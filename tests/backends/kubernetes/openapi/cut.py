"""Cut the definitions that the tests need out of a published OpenAPI of Kubernetes.

``python -m tests.backends.kubernetes.openapi.cut kubernetes_validate-1.37.0-py3-none-any.whl 1.28 1.34 1.37`` writes
``v1.28.json.gz`` and so on beside this file. The wheel is that of the package ``kubernetes-validate`` (Apache-2.0),
which holds the definitions of each release of Kubernetes (Apache-2.0) as strict JSON Schema. Descriptions are left out.
"""

from __future__ import annotations

import gzip
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOTS = (
    "api.apps.v1.Deployment",
    "api.batch.v1.Job",
    "api.coordination.v1.Lease",
    "api.core.v1.ConfigMap",
    "api.core.v1.Event",
    "api.core.v1.Namespace",
    "api.core.v1.Node",
    "api.core.v1.PersistentVolumeClaim",
    "api.core.v1.Pod",
    "api.core.v1.Service",
    "api.core.v1.ServiceAccount",
    "api.networking.v1.NetworkPolicy",
    "api.policy.v1.Eviction",
    "api.rbac.v1.ClusterRole",
    "api.rbac.v1.ClusterRoleBinding",
    "api.rbac.v1.Role",
    "api.rbac.v1.RoleBinding",
    "apimachinery.pkg.apis.meta.v1.Status",
)


def without_descriptions(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_descriptions(v) for k, v in value.items() if k != "description" or not isinstance(v, str)}
    return [without_descriptions(each) for each in value] if isinstance(value, list) else value


def names_in(value: Any) -> set[str]:
    """The definitions that a schema refers to."""
    if isinstance(value, dict):
        own = {str(value["$ref"]).rpartition("/")[2]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(names_in, value.values()))
    return set().union(*map(names_in, value)) if isinstance(value, list) else set()


def cut(definitions: dict[str, Any]) -> dict[str, Any]:
    """The definitions of `ROOTS`, and all that these refer to."""
    open_names = {f"io.k8s.{root}" for root in ROOTS}
    kept: dict[str, Any] = {}
    while open_names:
        name = open_names.pop()
        kept[name] = without_descriptions(definitions[name])
        open_names |= names_in(kept[name]) - kept.keys()
    return kept


def main(wheel: str, *versions: str) -> None:
    with zipfile.ZipFile(wheel) as packed:
        for version in versions:
            place = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict/_definitions.json"
            kept = cut(json.loads(packed.read(place))["$defs"])
            data = json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()
            (HERE / f"v{version}.json.gz").write_bytes(gzip.compress(data, 9, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
