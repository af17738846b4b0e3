"""The manifests of deploy/kubernetes, and the rights that they give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.backends.kubernetes.standin.cluster import StandInCluster

FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
SERVICE = "perdure"  # token of the service's own account


def documents() -> list[dict[str, Any]]:
    """All objects of all manifests."""
    files = sorted(FOLDER.glob("*.yaml"))
    return [
        each for file in files for each in yaml.safe_load_all(file.read_text()) if file.name != "kustomization.yaml"
    ]


def grant_rights(cluster: StandInCluster) -> None:
    """Let whoever has the token of the service do what the manifests say."""
    rules = {(each["kind"], each["metadata"]["name"]): each.get("rules", ()) for each in documents()}
    for each in documents():
        if each["kind"] in ("ClusterRoleBinding", "RoleBinding"):
            role = each["roleRef"]
            namespace = each["metadata"].get("namespace", "")
            cluster.api.access.grant(SERVICE, namespace, rules[role["kind"], role["name"]])
