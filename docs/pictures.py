"""Take the pictures of the dashboard anew: ``.venv/bin/python docs/pictures.py [--state DIR]``.

A service must run there, with the demonstration for ten minutes or more, so that there is something to see. Needs
Chromium, and playwright (``make test-tools``).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from perdure.service.client import ServiceFile
from perdure.service.settings import ServiceSettings

HERE = Path(__file__).parent / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDE, PHONE = 1440, 390
SETTLE_MS = 1500  # until charts are drawn
TOLD_BY_LOGS = ("port_busy", "lock", "nccl_timeout", "hang")  # causes with lines that show them


@dataclass(frozen=True)
class Picture:
    """One file: a page, its scheme of colours, and how much of it is shown."""

    name: str
    path: str
    height: int
    width: int = WIDE

    @property
    def scheme(self) -> str:
        return "dark" if self.name.endswith("-dark") else "light"


def pictures(job: str, comparison: str) -> list[Picture]:
    """All pictures; `job` is one that failed and was recovered, `comparison` one of policies that is done."""
    page = f"/jobs/{quote(job, safe='')}"
    return [
        Picture("now-light", "/", 1000),
        Picture("now-dark", "/", 1000),
        Picture("now-phone-light", "/", 844, PHONE),
        Picture("now-phone-dark", "/", 844, PHONE),
        Picture("jobs-light", "/jobs", 900),
        Picture("job-light", page, 1180),
        Picture("job-dark", page, 1180),
        Picture("job-phone-dark", page, 844, PHONE),
        Picture("nodes-dark", "/nodes", 860),
        Picture("actions-light", "/actions", 860),
        Picture("whatif-light", f"/whatif/{comparison}", 1180),
    ]


def ask(words: list[str], state: list[str]) -> str:
    """What a command of Perdure prints."""
    command = [sys.executable, "-m", "perdure", *words, *state]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def recovered(found: list[dict[str, Any]]) -> str:
    """A job that failed, was retried and came to a good end, else one that failed; the latest."""
    failed = [job for job in found if job["failure"]]
    good = [job for job in failed if job["failure"]["decision"] == "retry" and job["state"] == "completed"]
    good.sort(key=lambda job: job["failure"]["category"] not in TOLD_BY_LOGS)
    if not failed:
        raise SystemExit("no job has failed yet: wait a minute")
    return str((good or failed)[0]["job_id"])


def compared(service: ServiceFile) -> str:
    """The id of a comparison of a few policies on drawn jobs, which this asks for and waits for."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "cluster-jobs.csv"
        ask(["trace", "generate", "--jobs", "4000", "--cluster", "16x8", "--seed", "1", "--out", str(trace)], [])
        upload = call(service, f"/whatif/uploads?name={trace.name}", trace.read_bytes(), "application/octet-stream")
    asked = {"upload": upload["id"], "cluster": "16x8", "policies": ["fifo", "srtf", "las-2d", "easy"]}
    found = call(service, "/whatif/comparisons", json.dumps(asked).encode())
    while found["stage"] in ("waiting", "running"):
        time.sleep(1.0)
        found = call(service, f"/whatif/comparisons/{found['id']}")
    return str(found["id"])


def call(service: ServiceFile, path: str, body: bytes | None = None, form: str = "application/json") -> Any:
    """What the API answers; with a body to a POST."""
    headers = {"Authorization": f"Bearer {service.token}", "Content-Type": form}
    asked = urllib.request.Request(f"{service.url}/api/v1{path}", body, headers)  # noqa: S310  (of this service)
    with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


def take(browser: Any, link: str, wanted: list[Picture], folder: Path) -> None:
    """Log in by `link` and take every picture."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(link)
    address = link.partition("?")[0].rstrip("/")
    for picture in wanted:
        page.set_viewport_size({"width": picture.width, "height": picture.height})
        page.emulate_media(color_scheme=picture.scheme)
        page.goto(address + picture.path)
        page.wait_for_timeout(SETTLE_MS)
        page.screenshot(path=folder / f"{picture.name}.png")
    context.close()


def main() -> None:
    """Take them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", help="state directory of the service; as perdure up has it if not given")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the pictures")
    options = parser.parse_args()
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit("no Chromium is installed")
    from playwright.sync_api import sync_playwright

    state = ["--state", options.state] if options.state else []
    service = ServiceFile.read(Path(options.state or ServiceSettings().state))
    job = recovered(json.loads(ask(["jobs", "--json", "--limit", "500"], state))["jobs"])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        take(browser, ask(["open"], state).strip(), pictures(job, compared(service)), options.out)
        browser.close()


if __name__ == "__main__":
    main()
