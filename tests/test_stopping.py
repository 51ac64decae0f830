from jax_t2sql.stopping import Validation, best, out_of_patience


def found(*accuracies):
    return [Validation(20 * i, accuracy, 100) for i, accuracy in enumerate(accuracies)]


def test_the_best_is_the_first_of_equals():
    assert best([]) is None
    assert best(found(0.5, 0.6, 0.6, 0.4)).step == 20
    assert best(found(0.5, 0.52, 0.54, 0.56), min_gain=0.03).step == 40, "gains add up"


def test_patience_counts_validations_since_the_best():
    rising, falling = found(0.5, 0.6, 0.7), found(0.5, 0.6, 0.55, 0.59)
    assert out_of_patience(rising, patience=1) == ""
    assert out_of_patience(falling, patience=3) == ""
    why = out_of_patience(falling, patience=2)
    assert "60.0% of step 20" in why and "--eval.patience" in why
    assert out_of_patience(falling, patience=None) == out_of_patience([], patience=1) == ""
    assert out_of_patience(found(0.5, 0.52), patience=1, min_gain=0.05)
