"""All families: importing this module registers them."""

from __future__ import annotations

from data_pipelines.onedb import (
    families_compared,
    families_dates,
    families_figures,
    families_groups,
    families_middle,
    families_nested,
    families_paths,
    families_ranked,
    families_rows,
    families_shares,
    families_star,
)
from data_pipelines.onedb.draft import FAMILIES, Family

MODULES = (
    families_rows,
    families_ranked,
    families_figures,
    families_paths,
    families_groups,
    families_shares,
    families_star,
    families_middle,
    families_nested,
    families_compared,
    families_dates,
)


def all_families() -> list[Family]:
    """Every family, in the order of the modules."""
    return list(FAMILIES.values())
