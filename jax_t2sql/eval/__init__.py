"""The program `python -m jax_t2sql.eval`: questions, policies, answers, and what they score.

`suites` and `questions` say what is asked, `specs` and the `*_policy` modules who answers,
`answering` keeps the answers, `voting` weighs several of them, `run` puts it together; verdicts and
figures come from `jax_t2sql.scores`.
"""
