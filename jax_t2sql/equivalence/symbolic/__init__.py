"""Proof that two queries are equal on all small databases, by symbolic evaluation and z3."""

from jax_t2sql.equivalence.symbolic.proving import Model, NoProof, Proof, Proved, prove

__all__ = ["Model", "NoProof", "Proof", "Proved", "prove"]
