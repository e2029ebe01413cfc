"""The benchmarks: a module for each group of cases, and the list of them."""

import importlib

# In the order of a whole run. A group is a module with
#   TITLE         a line for people
#   rows(process, quick)   an iterator of rows, run in a process of its own
# and, where the defaults below are not meant,
#   PROCESSES     of which each measures a part: names, and changes of the environment
#   RATIOS        pairs of ways of which tables show the times' ratio
#   VALUE         what tables show of a way: "us", "GBps"
NAMES = ("bandwidth", "pairs", "loops", "limits", "launch", "scaling", "first_call")

_DEFAULTS = {
    "PROCESSES": {"": {}},
    "RATIOS": (("XLA", "ours"),),
    "VALUE": "us",
}


def load(name: str):
    """The module of a group."""
    module = importlib.import_module(f"groups.{name}")
    for attribute, default in _DEFAULTS.items():
        if not hasattr(module, attribute):
            setattr(module, attribute, default)
    return module
