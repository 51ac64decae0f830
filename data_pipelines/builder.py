"""Question sets as TFDS datasets in ArrayRecord files, written and read without TensorFlow."""

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_t2sql.errors import UserError
from jax_t2sql.text2sql import Problem

_TEXTS = ("question_id", "db_id", "question", "evidence", "SQL", "grading_method", "difficulty")


def import_tfds() -> Any:
    """The tensorflow_datasets package, which only the [data] extra brings.

    Raises:
      UserError: it is not installed.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UserError(
            f"datasets need the [data] extra ({error}); run: pip install 'jax_t2sql[data]'"
        ) from None
    # Its progress bars would break up those of the programs.
    tfds.disable_progress_bar()
    return tfds


def write_dataset(
    folder: Path,
    *,
    name: str,
    version: str,
    splits: Mapping[str, Sequence[Problem]],
    empty: frozenset[tuple[str, str]],
    description: str,
    homepage: str = "",
    citation: str = "",
    licence: str = "",
) -> Path:
    """Writes `folder/name/version` with one ArrayRecord file a split; the order is kept.

    Args:
      folder: holds datasets.
      name, version: of the dataset; the version is three numbers.
      splits: questions by split; none may be empty.
      empty: (split, question_id) of questions whose gold result is empty or all NULL.
      description, homepage, citation, licence: for whoever finds the files.

    Returns: the dataset's folder.
    """
    tfds = import_tfds()

    class Questions(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        """Questions with gold SQL."""

        VERSION = tfds.core.Version(version)

        def _info(self):
            return tfds.core.DatasetInfo(
                builder=self,
                description=description,
                features=_features(tfds),
                homepage=homepage,
                citation=citation,
                license=licence,
                disable_shuffling=True,
            )

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in splits}

        def _generate_examples(self, split) -> Iterator[tuple[int, dict]]:
            for index, problem in enumerate(splits[split]):
                yield index, _record(problem, (split, problem.question_id) in empty)

    builder_type = type("NamedQuestions", (Questions,), {"name": name}, skip_registration=True)
    with contextlib.redirect_stdout(io.StringIO()):
        builder = builder_type(data_dir=str(folder), file_format="array_record")
        builder.download_and_prepare()
    return Path(str(builder.data_dir))


def read_dataset(folder: Path) -> Mapping[str, Sequence[Problem]]:
    """The questions of a dataset's folder by split, read when they are looked up.

    Raises:
      UserError: there is no such dataset, or it holds something else than questions.
    """
    tfds = import_tfds()
    try:
        builder = tfds.builder_from_directory(str(folder))
        names = list(builder.info.splits)
        missing = {*_TEXTS, "source", "gold_empty"} - set(builder.info.features)
        if missing:
            raise UserError(
                f"{folder} holds no questions of ours (no {', '.join(sorted(missing))}); build it"
                " with data_pipelines.import_data or data_pipelines.build"
            )
        return {name: _Problems(builder.as_data_source(name)) for name in names}
    except UserError:
        raise
    except Exception as error:  # TFDS raises what it likes for a broken folder
        raise UserError(
            f"{folder} is no readable dataset ({type(error).__name__}: {error}); build it anew"
        ) from error


class _Problems(Sequence[Problem]):
    """Rows of an ArrayRecord file as problems, each read when it is asked for."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]):
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return _problem(self._rows[range(len(self))[index]])


def _features(tfds: Any) -> Any:
    import numpy as np

    texts = {field: tfds.features.Text() for field in (*_TEXTS, "source")}
    return tfds.features.FeaturesDict(texts | {"gold_empty": np.bool_})


def _record(problem: Problem, gold_empty: bool) -> dict[str, Any]:
    return {
        "question_id": problem.question_id,
        "db_id": problem.db_id,
        "question": problem.question,
        "evidence": problem.evidence,
        "SQL": problem.gold_sql,
        "grading_method": problem.grading,
        "difficulty": problem.difficulty or "",
        "source": problem.source,
        "gold_empty": gold_empty,
    }


def _problem(row: Mapping[str, Any]) -> Problem:
    text = {field: row[field].decode() for field in (*_TEXTS, "source")}
    return Problem(
        question_id=text["question_id"],
        db_id=text["db_id"],
        question=text["question"],
        gold_sql=text["SQL"],
        evidence=text["evidence"],
        grading=text["grading_method"],
        difficulty=text["difficulty"] or None,
        source=text["source"],
    )
