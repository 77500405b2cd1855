"""A plugin of pytest: of all tests only those that the file $ONLY names, as the results name them; and a line of results for
each test as soon as it has ended, so that nothing is lost when a later one ends the process."""

import os
import re


def name_of(nodeid):
    """As JUnit's XML has it, with its class."""
    path, *rest = nodeid.split("::")
    parameters = ""
    if rest and "[" in rest[-1]:
        rest[-1], _, parameters = rest[-1].partition("[")
        parameters = "[" + parameters
    parts = [path.replace("/", ".").removesuffix(".py"), *rest]
    text = ".".join(parts) + parameters
    return re.sub(r"0x[0-9a-f]{6,}", "0x", re.sub(r"\s+", " ", text))


def pytest_collection_modifyitems(config, items):
    only = os.environ.get("ONLY")
    if not only:
        return
    with open(only) as file:
        names = {line.rstrip("\n") for line in file}
    chosen = [item for item in items if name_of(item.nodeid) in names]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def pytest_runtest_logreport(report):
    if report.passed and report.when != "call":
        return
    outcome = report.outcome
    with open(os.environ["RESULTS"], "a") as results:
        results.write(f"{outcome}\t{name_of(report.nodeid)}\n")
