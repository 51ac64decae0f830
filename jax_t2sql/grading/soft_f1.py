"""The soft F1 of two results: how alike they are where they are not equal."""

from collections.abc import Sequence


def soft_f1(gold_rows: Sequence[tuple], pred_rows: Sequence[tuple]) -> float:
    """BIRD mini-dev's soft F1, from 0 to 1.

    Both results lose their repeated rows and are laid side by side in the order of their rows, the
    i-th beside the i-th. Of each pair, the predicted cells found anywhere in the gold row (matched)
    or not (extra), and the gold cells not found in the predicted row (missing) count over the
    number of gold columns; a row without a partner is one row extra or missing. With the sums over
    all pairs, precision is matched / (matched + extra), recall matched / (matched + missing), and
    the score their harmonic mean. Cells are compared with Python's equality. Two empty results
    score 1.

    As published it depends on the order of rows also where the question asks for none, forgives
    columns in another order, and may call different results equal: no measure of correctness.

    (The published example leaves NULL cells out and comes to 0.8 where the published program, which
    this follows, comes to 2/3.)

    Source: github.com/bird-bench/mini_dev, evaluation/evaluation_f1.py and its README's "Soft
    F1-Score".

    >>> gold = [(1, "Apple", 325), (2, "Orange", None), (3, "Banana", 119)]
    >>> soft_f1(gold, gold[::-1]) < soft_f1(gold, [(325, 1, "Apple"), *gold[1:]])
    True
    """
    if not gold_rows and not pred_rows:
        return 1.0
    gold, pred = list(dict.fromkeys(gold_rows)), list(dict.fromkeys(pred_rows))
    matched = extra = missing = 0.0
    for gold_row, pred_row in zip(gold, pred, strict=False):
        found = sum(cell in gold_row for cell in pred_row)
        lost = sum(cell not in pred_row for cell in gold_row)
        matched += found / len(gold_row)
        extra += (len(pred_row) - found) / len(gold_row)
        missing += lost / len(gold_row)
    extra += max(0, len(pred) - len(gold))
    missing += max(0, len(gold) - len(pred))
    precision = matched / (matched + extra) if matched else 0.0
    recall = matched / (matched + missing) if matched else 0.0
    return 2 * precision * recall / (precision + recall) if matched else 0.0
