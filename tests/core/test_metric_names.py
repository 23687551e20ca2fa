"""Keys of ``metrics.jsonl``: their spelling is part of the file format."""

from auxlearn.core.metric_names import SURROGATE, VALIDATION, Quantity


def test_the_spelling_of_the_keys_is_fixed():
    assert " ".join(quantity.key("x") for quantity in Quantity) == (
        "loss/x weight/x candidate/x factor/x dev/x aux/x norm/x cosine/x scale/x slope/x "
        "gradient_norm/x gradient_cosine/x conflict/x"
    )
    assert (Quantity.NORM.key(VALIDATION), Quantity.DEV.key(SURROGATE)) == (
        "norm/validation",
        "dev/surrogate",
    )


def test_a_quantity_is_read_from_a_row_without_the_others():
    row = {"step": 3, "weight/b": 0.25, "weight/a/b": 0.75, "weights": 1, "loss/a": 2.0}
    assert Quantity.WEIGHT.read(row) == {"b": 0.25, "a/b": 0.75}
    assert Quantity.COSINE.read(row) == {}
