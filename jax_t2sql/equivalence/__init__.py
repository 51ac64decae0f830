"""Bounded equivalence of two queries: search for a counterexample, proof, replay."""

from jax_t2sql.equivalence.catalog import Catalog, Rows, read_catalog
from jax_t2sql.equivalence.causes import unknown_cause
from jax_t2sql.equivalence.check import Budget, check
from jax_t2sql.equivalence.perturb import check_perturbed
from jax_t2sql.equivalence.verdict import Answer, Verdict, equivalent, refuted, unknown

__all__ = [
    "Answer",
    "Budget",
    "Catalog",
    "Rows",
    "Verdict",
    "check",
    "check_perturbed",
    "equivalent",
    "read_catalog",
    "refuted",
    "unknown",
    "unknown_cause",
]
