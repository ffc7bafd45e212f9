"""Questions about the 1994 census: one row for each person."""

from __future__ import annotations

import discreet as dp
from benchmarks.questions._question import Asked, topics

#: Public bounds, from the codebook of the census.
BOUNDS = {
    "age": (0.0, 120.0),
    "hours_per_week": (0.0, 100.0),
    "capital_gain": (0.0, 100000.0),
    "capital_loss": (0.0, 5000.0),
    "education_num": (1.0, 16.0),
}

QUESTIONS = [
    Asked("adult: how many people", "SELECT COUNT(*) FROM adult"),
    Asked(
        "adult: income by sex",
        "SELECT sex, income, COUNT(*) AS people FROM adult GROUP BY sex, income ORDER BY sex, income",
        {"sex": dp.datasets.SEX, "income": dp.datasets.INCOME},
    ),
    Asked(
        "adult: hours by education, longest first",
        "SELECT education, AVG(hours_per_week) AS hours FROM adult GROUP BY 1 ORDER BY hours DESC LIMIT 5",
        {"education": dp.datasets.EDUCATION},
    ),
    Asked(
        "adult: share of high incomes by sex",
        "SELECT sex, AVG(CASE WHEN income = '>50K' THEN 1 ELSE 0 END) AS high FROM adult GROUP BY sex",
        {"sex": dp.datasets.SEX},
    ),
    Asked(
        "adult: age bands",
        "SELECT CASE WHEN age < 30 THEN 'under 30' WHEN age < 50 THEN '30 to 49' ELSE '50 and over' END AS band, "
        "COUNT(*) AS people FROM adult GROUP BY band",
    ),
    Asked(
        "adult: decades of age",
        "SELECT FLOOR(age / 10) * 10 AS decade, AVG(hours_per_week) AS hours FROM adult "
        "GROUP BY decade ORDER BY decade",
        {"decade": [10, 20, 30, 40, 50, 60]},
    ),
    Asked(
        "adult: quartiles of age",
        "SELECT QUANTILE_CONT(age, [0.25, 0.5, 0.75]) AS age FROM adult WHERE income = '>50K'",
    ),
    Asked("adult: the median week", "SELECT MEDIAN(age) AS age, AVG(hours_per_week) AS hours FROM adult"),
    Asked(
        "adult: graduates by sector",
        "SELECT workclass, COUNT(*) FILTER (WHERE education IN ('Bachelors', 'Masters', 'Doctorate')) AS graduates, "
        "COUNT(*) AS people FROM adult GROUP BY workclass HAVING COUNT(*) > 1000",
        {"workclass": dp.datasets.WORKCLASS},
    ),
    Asked(
        "adult: gains of those who have some",
        "SELECT AVG(capital_gain - COALESCE(capital_loss, 0)) AS net FROM adult "
        "WHERE capital_gain > 0 OR capital_loss > 0",
    ),
    Asked(
        "adult: married people in an office",
        "SELECT COUNT(*) FROM adult WHERE marital_status LIKE 'Married%' AND LOWER(occupation) IN "
        "('exec-managerial', 'adm-clerical') AND age BETWEEN 25 AND 60",
    ),
    Asked("adult: how many countries", "SELECT COUNT(DISTINCT native_country) AS countries FROM adult"),
    Asked(
        "adult: yearly hours, in thousands",
        "SELECT sex, ROUND(SUM(hours_per_week * 52) / 1000) AS thousands FROM adult GROUP BY sex",
        {"sex": dp.datasets.SEX},
    ),
    Asked(
        "adult: the working and the others",
        "WITH people AS (SELECT hours_per_week >= 40 AS full_time, age FROM adult WHERE age >= 18) "
        "SELECT full_time, COUNT(*) AS n, AVG(age) AS age FROM people GROUP BY full_time",
        topics=topics("subquery"),
    ),
]
