"""The name most similar to one that does not exist, and lists of names in messages."""

from __future__ import annotations

import pytest

from quire.core.phrases import existing, nearest

MANY = [f"draft {number}" for number in range(30)]


@pytest.mark.parametrize(
    ("name", "names", "near"),
    [
        ("slaes", ["sales", "other"], "sales"),
        ("sales", [*MANY, "quarterly sales", *MANY], "quarterly sales"),
        ("Sales", ["a", "zz_sales_report.ipynb"], "zz_sales_report.ipynb"),
        (
            "report sales",
            ["sales", "all sales in a yearly report of the company"],
            "all sales in a yearly report of the company",
        ),
        ("sales", ["sales of the first quarter", "sales of the second quarter"], "sales of the second quarter"),
        ("sale", ["a wholesale company"], None),
        ("", ["a"], None),
        ("-", ["a b c"], None),
    ],
)
def test_the_nearest_name_is_similar_or_has_the_same_words(name: str, names: list[str], near: str | None) -> None:
    assert nearest(name, names) == near


def test_the_newest_names_are_listed_and_older_ones_counted_last() -> None:
    assert existing("x y", ["a", "b"]) == "There are: a, b."
    listed = ", ".join(MANY[1:21])
    assert existing("none", MANY[:21]) == f"There are: {listed} and 1 older one."
    assert existing("none", MANY).endswith("draft 28, draft 29 and 10 older ones.")
