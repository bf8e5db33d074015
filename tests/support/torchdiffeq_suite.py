"""Run torchdiffeq's own tests on this library, and count subtests.

Its source distribution carries no tests; give the folder of a checkout:
`python tests/support/torchdiffeq_suite.py PATH/torchdiffeq/tests`. Every subtest that
fails is printed, and at the end the share that passes. It takes some minutes.
"""

from __future__ import annotations

import sys
import unittest
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import undamped

FILES = ("api_tests", "odeint_tests", "gradient_tests", "event_tests", "norm_tests")


class Counted(unittest.TestResult):
    """Counts subtests, and tests that have none."""

    def __init__(self) -> None:
        super().__init__()
        self.good, self.bad = Counter[str](), Counter[str]()

    def _failed(self, test: Any, error: Any, what: str = "") -> None:
        self.bad[test.id()] += 1
        print(f"{test.id()} {what}: {error[0].__name__}: {str(error[1])[:160]}", flush=True)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
        if err is None:
            self.good[test.id()] += 1
        else:
            self._failed(test, err, subtest._subDescription())

    def addSuccess(self, test: Any) -> None:  # noqa: N802
        if not self.good[test.id()]:
            self.good[test.id()] += 1

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802
        self._failed(test, err)

    addFailure = addError  # noqa: N815


def main(folder: Path) -> None:
    """Print what fails, and the share that does not."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(folder))
    sys.modules["torchdiffeq"] = undamped
    result = Counted()
    for name in FILES:
        unittest.defaultTestLoader.loadTestsFromName(name).run(result)
    good, bad = result.good.total(), result.bad.total()
    print(f"{good} of {good + bad} subtests, {100 * good / (good + bad):.1f} %")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
