"""What Transduce stands on: versions that are named in several places, and licences."""

import json
import re
import runpy
import subprocess
import sys
import tomllib
from email.message import Message
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = Path(__file__).parents[1]
ABOUT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ABOUT["optional-dependencies"]
USED = [
    one
    for one in [*ABOUT["dependencies"], *EXTRAS["serve"], *EXTRAS["documents"]]
    if Requirement(one).name != "transduce"
]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """The functions of scripts/write-sbom."""
    return runpy.run_path(str(PROJECT / "scripts" / "write-sbom"))


def read_constraints(name: str) -> dict[str, Version]:
    lines = (PROJECT / name).read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(package): Version(version) for package, version in pins}


def test_the_oldest_versions_are_those_that_are_allowed() -> None:
    """constraints-oldest.txt is what pyproject.toml says, so that a test with it shows whether that is true."""
    oldest = {}
    for requirement in map(Requirement, USED):
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        oldest[canonicalize_name(requirement.name)] = Version(bound.version)
    assert read_constraints("constraints-oldest.txt") == oldest


def test_the_bill_of_materials_has_every_extra_of_users(script: dict[str, Any]) -> None:
    assert set(EXTRAS) - set(script["EXTRAS"]) == {"docs", "release", "test", "wheels"}


def test_pinned_versions_are_allowed() -> None:
    pins = read_constraints("constraints.txt")
    groups = [*ABOUT["optional-dependencies"].values(), ABOUT["dependencies"]]
    requirements = [Requirement(one) for group in groups for one in group]
    assert {one.name for one in requirements if canonicalize_name(one.name) not in pins} <= {"transduce"}
    for one in requirements:
        assert one.name == "transduce" or one.specifier.contains(pins[canonicalize_name(one.name)]), one


def test_the_workflows_test_the_versions_of_python_that_are_named() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(ABOUT["classifiers"]))
    workflow = (PROJECT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    (matrix,) = re.findall(r'^ +python: \[("3\.11".*)\]$', workflow, flags=re.MULTILINE)
    assert matrix.replace('"', "").split(", ") == named
    assert ABOUT["requires-python"] == f">={named[0]}"


def test_licences_of_dependencies_are_compatible(script: dict[str, Any]) -> None:
    packages = script["find_dependencies"]("transduce", script["EXTRAS"])
    names = {canonicalize_name(one.name) for one in packages}
    assert {canonicalize_name(Requirement(one).name) for one in ABOUT["dependencies"]} <= names
    assert {"markupsafe", "sympy"} <= names  # what others need in turn
    assert script["find_problems"](packages) == []


@pytest.mark.parametrize(
    ("fields", "is_compatible"),
    [
        ({"License-Expression": "MIT"}, True),
        ({"License-Expression": "Apache-2.0 AND GPL-3.0-only"}, False),
        ({"License-Expression": "GPL-2.0-only OR BSD-3-Clause"}, True),
        ({"Classifier": "License :: OSI Approved :: GNU General Public License v3 (GPLv3)"}, False),
        ({"Classifier": "License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)"}, True),
        ({"Classifier": "License :: Other/Proprietary License"}, False),
        ({"License": "Affero GPL, for limited use"}, False),
        ({"License": "UNKNOWN"}, False),
        ({}, False),
    ],
)
def test_licences_are_told_apart(script: dict[str, Any], fields: dict[str, str], *, is_compatible: bool) -> None:
    class Package:
        name, metadata = "package", Message()

    Package.metadata = Message()
    for key, value in fields.items():
        Package.metadata[key] = value
    assert (script["find_problems"]([Package]) == []) is is_compatible


def test_the_bill_of_materials_is_written(tmp_path: Path) -> None:
    if find_spec("cyclonedx_py") is None:
        pytest.skip("needs cyclonedx-bom: the extra `release`")
    command = [sys.executable, str(PROJECT / "scripts" / "write-sbom"), "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=False, encoding="utf-8", timeout=600)
    assert done.returncode == 0, done.stderr
    (bill,) = tmp_path.glob("*.cdx.json")
    content = json.loads(bill.read_text(encoding="utf-8"))
    assert content["bomFormat"] == "CycloneDX"
    assert content["metadata"]["component"]["name"] == "transduce"
    versions = {canonicalize_name(one["name"]): one["version"] for one in content["components"]}
    rows = (tmp_path / "licences.md").read_text(encoding="utf-8").splitlines()[2:]
    listed = dict(tuple(cell.strip() for cell in row.strip("|").split("|"))[:2] for row in rows)
    assert versions == {canonicalize_name(name): version for name, version in listed.items()}
    assert {"torch", "pydantic"} <= versions.keys()
    assert not {"cyclonedx-bom", "pip", "zizmor"} & versions.keys()
    refs = {one["bom-ref"] for one in (*content["components"], content["metadata"]["component"])}
    needs = {one["ref"]: set(one["dependsOn"]) for one in content["dependencies"]}
    assert needs.keys() | set.union(*needs.values()) <= refs
