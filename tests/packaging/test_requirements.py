"""What is installed: pinned, hashed, from anywhere, small; and every optional part is known to the commands."""

import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from perdure.installation import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
MODULES = {"scikit-learn": "sklearn"}  # distributions whose module is not called like them
MAX_INSTALLED_BYTES = 300e6


def entries(lock: Path) -> Iterator[tuple[Requirement, list[str]]]:
    """Each locked requirement with its hashes."""
    joined = lock.read_text().replace("\\\n", " ")
    for line in joined.splitlines():
        if line.strip() and not line.startswith("#"):
            requirement, *options = line.split(" --")
            yield Requirement(requirement.strip()), [option.strip() for option in options]


def test_there_is_a_lock_for_use_one_for_clusters_one_for_replays_and_one_for_tests() -> None:
    assert [lock.name for lock in LOCKS] == ["base.txt", "cluster.txt", "sim.txt", "test.txt"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_each_locked_requirement_is_pinned_and_hashed_and_names_no_index(lock: Path) -> None:
    for requirement, options in entries(lock):
        assert [specifier.operator for specifier in requirement.specifier] == ["=="], requirement
        assert requirement.url is None
        assert options, requirement
        assert all(option.startswith("hash=sha256:") for option in options), requirement
    assert "://" not in lock.read_text()
    assert "--index" not in lock.read_text()


def test_the_tests_run_with_what_users_install() -> None:
    """Versions: on which systems a package is taken differs with what takes it."""
    base, cluster, sim, test = (
        {(canonicalize_name(requirement.name), str(requirement.specifier)) for requirement, _ in entries(lock)}
        for lock in LOCKS
    )
    assert base < sim < test
    assert base < cluster < test


@pytest.mark.parametrize(("lock", "extras"), [("cluster", ("k8s", "postgres")), ("sim", ("sim",))])
def test_a_lock_holds_what_its_extras_need(lock: str, extras: tuple[str, ...]) -> None:
    locked = {canonicalize_name(requirement.name) for requirement, _ in entries(ROOT / f"requirements/{lock}.txt")}
    assert {Requirement(text).name for extra in extras for text in PROJECT["optional-dependencies"][extra]} <= locked


def test_the_lock_satisfies_the_project() -> None:
    locked = {canonicalize_name(requirement.name): requirement for requirement, _ in entries(LOCKS[0])}
    for text in PROJECT["dependencies"]:
        wanted = Requirement(text)
        (pin,) = locked[canonicalize_name(wanted.name)].specifier
        assert wanted.specifier.contains(pin.version), text


def test_the_base_is_small() -> None:
    sizes = {}
    for requirement, _ in entries(LOCKS[0]):
        if requirement.marker is None or requirement.marker.evaluate():
            sizes[requirement.name] = size_of(requirement.name)
    assert sum(sizes.values()) < MAX_INSTALLED_BYTES, sorted(sizes.items(), key=lambda item: -item[1])[:8]


def size_of(name: str) -> int:
    """Bytes on disk of an installed distribution."""
    paths = (Path(file.locate()) for file in distribution(name).files or ())
    return sum(path.stat().st_size for path in paths if path.is_file())


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_an_extra_brings_the_modules_by_which_a_command_knows_it(extra: str) -> None:
    wanted = [Requirement(text).name for text in PROJECT["optional-dependencies"][extra]]
    assert [MODULES.get(name, name.replace("-", "_")) for name in wanted] == list(EXTRAS[extra])


def test_every_extra_is_known_to_the_commands() -> None:
    assert set(PROJECT["optional-dependencies"]) - {"all", "test"} == set(EXTRAS)


def test_all_is_made_of_extras() -> None:
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert Requirement(everything).extras <= set(EXTRAS)
