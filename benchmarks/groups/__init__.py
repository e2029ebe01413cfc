"""The benchmarks: a module for each group of cases, and the list of them.

A group is a module with ``TITLE``, a line for people, and ``rows(process, quick)``, an iterator of
rows that is run in a process of its own; and, where the defaults that ``load`` has are not meant,
``PROCESSES``, ``RATIOS`` and ``VALUE``.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from report import Row

# In the order of a whole run.
NAMES = ("bandwidth", "pairs", "loops", "limits", "launch", "scaling", "first_call")


class Group(NamedTuple):
    """What a group's module says.

    Attributes:
      title: a line for people.
      rows: measures, in this process, what belongs to the process of that name; quickly or not.
      processes: names, and what the environment has beside the user's.
      ratios: pairs of ways of which tables show the times' ratio.
      value: what tables show of a way: "us" or "GBps".
    """

    title: str
    rows: Callable[[str, bool], Iterator[Row]]
    processes: Mapping[str, Mapping[str, str]]
    ratios: Sequence[tuple[str, str]]
    value: str


def load(name: str) -> Group:
    """A group."""
    module = importlib.import_module(f"groups.{name}")
    return Group(
        module.TITLE,
        module.rows,
        getattr(module, "PROCESSES", {"": {}}),
        getattr(module, "RATIOS", (("XLA", "ours"),)),
        getattr(module, "VALUE", "us"),
    )
