"""One database and no questions: a training set whose SQL is right by construction.

`python -m data_pipelines.onedb build DB --out POOL.jsonl` scans a SQLite database, names what is in
it, draws questions from families of templates, keeps the sound ones and words them. SQL and English
come from the same choices.
"""
