"""The libraries: each does its work, figures are pictures, and all of it is in an image."""

from __future__ import annotations

import pytest

from quire.runtimes.wasm.host.science.language import ScienceLanguage
from tests.support.wasm.python_guest import Make, Notebook

pytestmark = pytest.mark.soak(sample=True)

WORK = [
    ("import numpy as np\nfloat((np.arange(6.0).reshape(2, 3) @ np.ones((3, 2))).sum())", 30),
    ("import numpy as np\nround(float(np.linalg.det([[1.0, 2.0], [3.0, 4.0]])), 6)", -2),
    (
        "import pandas as pd\npd.DataFrame({'k': [*'aab'], 'v': [1, 2, 5]}).groupby('k').v.sum().to_dict()",
        {"a": 3, "b": 5},
    ),
    ("import io, pandas as pd\npd.read_csv(io.StringIO('a,b\\n1,x\\n2,y')).shape[0]", 2),
    ("from scipy import optimize\nround(float(optimize.brentq(lambda x: x * x - 2, 0, 2)), 6)", 1.414214),
    ("from scipy import stats\nround(float(stats.norm.cdf(1.96)), 4)", 0.975),
    ("from scipy import integrate\nround(integrate.quad(lambda x: x * x, 0, 3)[0], 6)", 9),
    (
        "from sklearn.cluster import KMeans\n"
        "len(set(KMeans(2, n_init=3, random_state=0).fit_predict([[0], [1], [9], [10]])))",
        2,
    ),
    (
        "from sklearn.datasets import load_iris\nfrom sklearn.ensemble import RandomForestClassifier\n"
        "bool(RandomForestClassifier(10, random_state=0).fit(*load_iris(return_X_y=True)).score("
        "*load_iris(return_X_y=True)) > 0.95)",
        True,
    ),
    ("import sympy\nstr(sympy.integrate(sympy.Symbol('x') ** 2))", "x**3/3"),
]
DRAW = """
import matplotlib.pyplot as plt
figure, axes = plt.subplots()
axes.plot([1, 4, 9])
axes.set_title('squares');
"""
STATE = """
import numpy as np, pandas as pd
from sklearn.linear_model import LinearRegression
table = pd.DataFrame({'x': np.arange(5.0), 'y': 2 * np.arange(5.0) + 1})
fitted = LinearRegression().fit(table[['x']], table.y)
dice = np.random.default_rng(7)
drawn = dice.random()
each = (row for row in table.itertuples()); next(each)
"""
LOOK = """
[float(table.y.sum()), round(float(fitted.predict(pd.DataFrame({'x': [10.0]}))[0]), 6), float(dice.random()),
 next(each).Index]
"""


@pytest.mark.parametrize(("code", "value"), WORK)
def test_a_library_does_its_work(notebook: Notebook, code: str, value: object) -> None:
    assert notebook.run(code).value == value


def test_a_table_is_shown_as_one(notebook: Notebook) -> None:
    (shown,) = notebook.run("import pandas as pd\npd.DataFrame({'a': [1, 2]})").shown
    assert "<table" in shown["text/html"] and "text/plain" in shown


def test_a_figure_is_a_picture_at_the_end_of_its_cell(notebook: Notebook) -> None:
    (shown,) = notebook.run(DRAW).shown
    assert shown["image/png"].startswith(b"\x89PNG")
    assert notebook.run("1").shown == [{"text/plain": "1"}]  # it was shown once


def test_a_figure_can_be_shown_and_saved_by_the_cell(notebook: Notebook) -> None:
    ran = notebook.run(f"{DRAW}\nfigure.savefig('squares.svg')\nplt.show()\nprint('after')")
    assert [each for each in ran.shown if "image/png" in each] and ran.text == "after\n"
    assert "<svg" in notebook.run("open('squares.svg').read()[:500]").value


def test_what_libraries_hold_comes_back_with_an_image(make: Make) -> None:
    first = make()
    assert first.run(STATE).finished.outcome == "success"
    second = make(image=first.guest.image())
    assert first.run(LOOK).value == second.run(LOOK).value
    assert second.run("next(each).Index").value == 2


def test_figures_are_drawn_where_an_image_is_put_back(make: Make) -> None:
    """Fonts are files that matplotlib keeps open."""
    first = make()
    first.run(DRAW)
    second = make(image=first.guest.image())
    for each in (second, first):
        (shown,) = each.run(DRAW).shown
        assert "image/png" in shown


def test_two_of_one_image_draw_different_random_numbers_of_numpys(make: Make) -> None:
    first = make()
    first.run("import numpy as np\nnp.random.seed(1)")
    image = first.guest.image()
    assert make(image=image).run("np.random.rand()").value != make(image=image).run("np.random.rand()").value


def test_it_says_what_it_has(language: ScienceLanguage) -> None:
    names = [each.split()[0] for each in language.packages]
    assert names == ["numpy", "pandas", "scipy", "scikit-learn", "matplotlib"]
    assert language.version.startswith("Python 3.")


def test_guests_have_in_common_what_none_has_changed(make: Make) -> None:
    several = [make() for _ in range(3)]
    for each in several:
        each.run("import numpy, pandas, scipy, sklearn, matplotlib.pyplot")
    assert all(each.guest.memory() < 8 << 20 for each in several)
