import pytest

from data_pipelines import import_data, show_prompt
from jax_t2sql.errors import UserError


@pytest.fixture
def show(shop, capsys):
    def show(*options):
        files = ["--data", str(shop / "questions.jsonl"), "--databases", str(shop / "databases")]
        assert show_prompt.main([*files, *map(str, options)]) == 0
        return capsys.readouterr()

    return show


def test_the_prompt_of_a_question(show):
    text, told = show("--id", 4, "--evidence", "structured")
    assert "=== system\n" in text and "Question: Which items cost more than 4?" in text
    assert "1. cost refers to price\n2. more refers to > 4" in text
    assert "price REAL -- what it costs; in euros" in text
    assert f"question 4 (depot): {len(text) - len('=== system||=== user||||'):,}" in told
    first, _ = show("--style", "question")
    assert first == "=== user\nWhich items cost more than 0?\n\n"


def test_the_schema_may_be_cut(show):
    text, told = show("--schema-tokens", 40, "--style", "direct")
    assert "1 of 2 columns" in told and "-- 1 of 2 columns are shown" in text


def test_a_file_of_ddl_stands_for_a_database(show, shop):
    (shop / "a.sql").write_text('CREATE TABLE GA4.PUBLIC.EVENTS ("event_name" TEXT, SIZE NUMBER)')
    text, _ = show("--ddl", shop / "a.sql", "--dialect", "snowflake")
    assert 'CREATE TABLE GA4.PUBLIC.EVENTS (\n  "event_name" TEXT,\n  SIZE NUMBER\n);' in text
    assert "a Snowflake database" in text


def test_datasets(shop, capsys):
    pytest.importorskip("tensorflow_datasets", reason="needs the [data] extra")
    files = ["--questions", str(shop / "questions.jsonl"), "--databases", str(shop / "databases")]
    import_data.main([*files, "--name", "mine", "--out", str(shop / "out")])
    spec = f"tfds:{shop / 'out' / 'mine'}"
    (shop / "a.sql").write_text("CREATE TABLE other (a TEXT)")
    capsys.readouterr()
    for options, word in (
        (["--data", f"{spec}@train"], "CREATE TABLE item"),
        (["--data", spec, "--ddl", str(shop / "a.sql")], "CREATE TABLE other"),
    ):
        assert show_prompt.main(options) == 0
        assert word in capsys.readouterr().out
    with pytest.raises(UserError, match="no split 'x'"):
        show_prompt.main(["--data", f"{spec}@x", "--ddl", str(shop / "a.sql")])


def test_faults(show, shop):
    with pytest.raises(UserError, match="no question '99'; the first is '0'"):
        show("--id", 99)
    with pytest.raises(UserError, match="at least 1"):
        show("--max-turns", 0)
    with pytest.raises(UserError, match="none.sql"):
        show("--ddl", shop / "none.sql")
    with pytest.raises(UserError, match="needs --databases"):
        show_prompt.main(["--data", str(shop / "questions.jsonl")])
