"""Files that an expression of `-m` can choose nothing from are not imported."""

import tomllib

import pytest

from tests.support.marks import MARKS, may_be_chosen
from tests.support.tree import ROOT

WHOLE = '"""Text."""\n\nimport torch\n\npytestmark = pytest.mark.torch\n'
PART = "@pytest.mark.smoke\ndef test_it() -> None: ...\n\n\ndef test_other() -> None: ...\n"
NONE = "def test_it() -> None: ...\n"
HELPED = "from tests.support.with_torch import with_torch\n"


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("", (WHOLE, PART, NONE, HELPED)),
        ("not slow and not torch", (PART, NONE, HELPED)),
        ("not slow and (torch or smoke)", (WHOLE, PART, HELPED)),
        ("torch and smoke", ()),
        ("torch", (WHOLE, HELPED)),
        ("not smoke", (WHOLE, PART, NONE, HELPED)),
        ("browser and not torch and not frameworks", ()),
        ("parametrize and not torch", (PART, NONE, HELPED)),
        ("slow(reason='x')", (WHOLE, PART, NONE, HELPED)),
        ("not (", (WHOLE, PART, NONE, HELPED)),
    ],
)
def test_a_file_is_read_where_a_test_of_it_may_be_chosen(
    expression: str, chosen: tuple[str, ...]
) -> None:
    texts = (WHOLE, PART, NONE, HELPED)
    assert tuple(x for x in texts if may_be_chosen(x, expression)) == chosen


def test_the_marks_are_those_of_the_project() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        told = tomllib.load(file)["tool"]["pytest"]["ini_options"]["markers"]
    assert {line.partition(":")[0] for line in told} == MARKS
