"""Against real databases and real model predictions, with labels that others' rules gave them."""

import json

import pytest

from jax_t2sql.sql import (
    Limits,
    Sandbox,
    is_ordered,
    parse_mode,
    quote_identifier,
    read_schema,
    resolve_database,
    results_equal,
    sample_values,
)


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Runner:
    """Runs each query of each database once."""

    def __init__(self, databases):
        self.databases = databases
        self.sandboxes, self.outcomes = {}, {}

    def __call__(self, db_id, sql):
        if db_id not in self.sandboxes:
            path = resolve_database(self.databases, db_id)
            self.sandboxes[db_id] = Sandbox(path, limits=Limits(seconds=30))
        if (db_id, sql) not in self.outcomes:
            self.outcomes[db_id, sql] = self.sandboxes[db_id].execute(sql)
        return self.outcomes[db_id, sql]


@pytest.fixture(scope="module")
def run(data_dir):
    runner = Runner(data_dir / "spider_dev" / "database")
    yield runner
    for sandbox in runner.sandboxes.values():
        sandbox.close()


@pytest.mark.parametrize("name", ["spider_dev_predictions", "example_pairs"])
def test_verdicts_on_predictions_equal_the_labels(data_dir, run, name):
    labels = {"bird": "eq_set", "set": "eq_set", "multiset": "eq_multiset", "list": "eq_list"}
    rows = read(data_dir / "test_suite" / f"{name}.jsonl")
    assert len(rows) > 300
    for row in rows:
        gold, pred = run(row["db_id"], row["gold"]), run(row["db_id"], row["pred"])
        assert (gold.ok, pred.ok) == (row["gold_ok"], row["pred_ok"]), row["id"]
        for mode, label in labels.items():
            equal = gold.ok and pred.ok and results_equal(gold.rows, pred.rows, mode)
            assert equal == row[label], (row["id"], mode)


def test_golds_run_and_their_order_is_seen(data_dir, run):
    for row in read(data_dir / "spider_dev" / "questions.jsonl"):
        outcome = run(row["db_id"], row["SQL"])
        assert outcome.ok == row["executes"], row["question_id"]
        assert len(outcome.rows) == row["n_rows"]
        assert is_ordered(row["SQL"]) == row["top_level_order_by"], row["SQL"]


def test_every_grading_method_of_the_verified_data_is_read(data_dir):
    for split in ("train", "val"):
        for row in read(data_dir / "bird_platinum" / f"bird_verified_{split}.jsonl"):
            mode = parse_mode(row["grading_method"])
            assert str(mode).startswith(row["grading_method"].strip())


def test_all_databases_load_with_their_odd_names(data_dir):
    hazards = json.loads((data_dir / "hazards.json").read_text(encoding="utf-8"))
    assert len(hazards) > 100
    odd = 0
    for hazard in hazards:
        path = resolve_database(data_dir / hazard["path"], "any")
        schema = read_schema(path)
        assert schema.tables, path
        for name in (*hazard["reserved"], *hazard["odd_names"]):
            table_name, _, column_name = name.partition(".")
            table = schema.table(table_name)
            column = table.column(column_name) if column_name else table.columns[0]
            assert column, name
            sample_values(path, table.name, column.name)
            with Sandbox(path, limits=Limits()) as sandbox:
                select = (
                    f"SELECT {quote_identifier(column.name)} FROM {quote_identifier(table.name)}"
                )
                outcome = sandbox.execute(select)
            assert outcome.ok and not outcome.warnings, outcome.message
            odd += 1
        for empty in hazard["empty_tables"]:
            assert schema.table(empty)
    assert odd > 8
