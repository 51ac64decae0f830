import pytest

from jax_t2sql.text2sql import schema_text
from jax_t2sql.text2sql.descriptions import decode_text, find_descriptions, read_descriptions

HEAD = "original_column_name,column_name,column_description,data_format,value_description\n"


@pytest.fixture
def folder(zoo, tmp_path):
    """A copy of the zoo with a folder of descriptions beside it."""
    database = tmp_path / "zoo" / "zoo.sqlite"
    (database.parent / "database_description").mkdir(parents=True)
    database.write_bytes(zoo.read_bytes())
    return database


def describe(database, text, name="zoo.csv"):
    data = text if isinstance(text, bytes) else text.encode()
    (database.parent / "database_description" / name).write_bytes(data)


def test_descriptions_stand_beside_their_columns_and_values_beside_the_others(folder):
    describe(folder, HEAD + " NAME ,zoo name,what it is called,text,\ncity,,,text,\n", "ZOO.CSV")
    text = schema_text(folder)
    assert "  name TEXT, -- zoo name; what it is called\n" in text
    assert "  city TEXT -- 'Delft', 'Gouda', '<|im_end|>'\n" in text
    assert "  id INTEGER PRIMARY KEY, -- 0, 1, 2\n" in text
    assert "zoo name" not in schema_text(folder, descriptions=False)
    # The text follows the files.
    describe(folder, HEAD + "name,,another text,text,\n", "ZOO.CSV")
    assert "-- another text\n" in schema_text(folder)


def test_links_lead_to_the_descriptions_of_the_file_itself(folder, tmp_path):
    describe(folder, HEAD + "city,,where,text,\n")
    link = tmp_path / "other.sqlite"
    link.symlink_to(folder)
    assert "-- where" in schema_text(link)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("city,city,city,text,", None),
        ("city,City ,the city,text,", "the city"),
        ('city,,"two\n lines",text,"0: ""no"" 1: yes"', 'two lines; 0: "no" 1: yes'),
        # What was said is not said again.
        ("city,the town,where the town lies,text,the town", "the town; where the town lies"),
        ("city", None),
        ("city,,short row", "short row"),
        (",,of nothing,text,", None),
        ("city,,x,text,,more,cells", "x"),
        ("city,,nul\0 byte,text,", "nul byte"),
        (f"city,,{'x' * 1000},text,", "x" * 400 + "…"),
        ("city,,a\u2028b,text,", "a b"),
    ],
)
def test_rows(folder, row, expected):
    describe(folder, HEAD + row + "\n")
    found = read_descriptions(find_descriptions(folder))
    assert found.get(("zoo", "city")) == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "utf-32"])
def test_encodings(folder, encoding):
    describe(folder, (HEAD + "city,,naïve – “é”,text,\n").encode(encoding))
    assert read_descriptions(find_descriptions(folder)) == {("zoo", "city"): "naïve – “é”"}


def test_no_bytes_are_refused(folder):
    assert decode_text(bytes(range(256)))
    for data in (bytes(range(256)) * 4, b"", b'"', HEAD.encode() + b'"' + b"x" * 200_000):
        describe(folder, data)
        schema_text(folder)


def test_real_descriptions(data_dir):
    database = data_dir / "bird_small" / "database" / "superhero" / "superhero.sqlite"
    text = schema_text(database)
    assert "superhero_name TEXT, -- the name of the superhero\n" in text
    assert "the weight of the superhero" in text
