"""Reinforcement learning for text-to-SQL in pure JAX."""

__version__ = "0.1.0"
