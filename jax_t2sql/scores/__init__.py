"""Scores of answers to questions: records, graders side by side, statistics, cost, reports.

No model is loaded here and no jax: everything works on the files of an evaluation.
"""
