"""Questions about a hospital: visits of patients over two years, the patients, and a public list of wards."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa

from benchmarks.questions._question import Asked, topics

WARDS = ("Cardiology", "Emergency", "Maternity", "Oncology", "Pediatrics", "Surgery")
BUILDINGS = ("North", "North", "South", "North", "South", "South")
CITIES = ("Ashford", "Brook", "Carrick", "Dunmore")
#: The most visits of one patient that count.
LIMIT = 8
BOUNDS = {
    "cost": (0.0, 5000.0),
    "age": (0.0, 110.0),
    "beds": (0.0, 100.0),
}
MONTHS = [dt.date(year, month, 1) for year in (2023, 2024) for month in range(1, 13)]


def tables(patients: int) -> dict[str, pa.Table]:
    """Patients with about four visits each, and the wards."""
    generator = np.random.default_rng(14)
    count = np.minimum(1 + generator.poisson(3, patients), 12)
    person = np.repeat(np.arange(patients), count)
    visits = len(person)
    ward = generator.choice(len(WARDS), visits, p=[0.2, 0.3, 0.1, 0.1, 0.15, 0.15])
    # More visits in winter than in summer.
    start = np.datetime64("2023-01-01T00:00:00", "s")
    second = generator.integers(0, 731 * 86400, 2 * visits)
    kept = generator.random(2 * visits) < 0.6 + 0.4 * np.cos(2 * np.pi * second / (365.25 * 86400))
    admitted = start + np.resize(second[kept], visits).astype("timedelta64[s]")
    stay = generator.geometric(0.25, visits) - 1
    cost = np.round(np.minimum(generator.lognormal(6.0, 0.7, visits) * (1 + stay / 4), 20000.0), 2)
    age = generator.integers(0, 95, patients)
    day = admitted.astype("datetime64[D]")
    diagnosis = np.array([f"{letter}{number:02d}" for letter in "IJKO" for number in range(25)])
    return {
        "visits": pa.table(
            {
                "visit": np.arange(visits),
                "person": person,
                "ward": np.array(WARDS)[ward],
                "admitted": pa.array(admitted.astype("datetime64[us]")),
                "day": pa.array(day),
                "discharged": pa.array(day + stay.astype("timedelta64[D]")),
                "diagnosis": generator.choice(diagnosis, visits),
                "cost": cost,
                "age": age[person],
                "emergency": generator.random(visits) < 0.3,
            }
        ),
        "patients": pa.table(
            {
                "person": np.arange(patients),
                "born": pa.array(np.datetime64("2023-01-01") - (age * 365.25).astype("timedelta64[D]")),
                "sex": generator.choice(["f", "m"], patients),
                "city": generator.choice(CITIES, patients, p=[0.4, 0.3, 0.2, 0.1]),
            }
        ),
        "wards": pa.table({"name": list(WARDS), "building": list(BUILDINGS), "beds": [40, 60, 25, 30, 35, 50]}),
    }


_BY_WARD = {"ward": WARDS}

QUESTIONS = [
    Asked(
        "visits: month by month",
        "SELECT DATE_TRUNC('month', day) AS month, COUNT(*) AS visits FROM visits GROUP BY month ORDER BY month",
        {"month": MONTHS},
        LIMIT,
        topics=topics("dates"),
    ),
    Asked(
        "visits: cost by year and quarter",
        "SELECT EXTRACT(year FROM day) AS year, EXTRACT(quarter FROM day) AS quarter, SUM(cost) AS cost FROM visits "
        "GROUP BY 1, 2 ORDER BY 1, 2",
        {"year": [2023, 2024]},
        LIMIT,
        topics=topics("dates"),
    ),
    Asked(
        "visits: by hour of the day",
        "SELECT EXTRACT(hour FROM admitted) AS hour, COUNT(*) AS visits FROM visits GROUP BY hour",
        {},
        LIMIT,
        topics=topics("dates"),
    ),
    Asked(
        "visits: by weekday",
        "SELECT ISODOW(day) AS weekday, COUNT(*) AS visits FROM visits GROUP BY weekday ORDER BY visits DESC",
        {},
        LIMIT,
        topics=topics("dates"),
    ),
    Asked(
        "visits: nights by ward",
        "SELECT ward, AVG(CLAMP(discharged - day, 0, 30)) AS nights FROM visits GROUP BY ward",
        _BY_WARD,
        LIMIT,
        truth="SELECT ward, AVG(LEAST(discharged - day, 30)) AS nights FROM visits GROUP BY ward",
        topics=topics("dates"),
    ),
    Asked(
        "visits: stays over a week",
        "SELECT COUNT(*) FROM visits WHERE DATE_DIFF('day', day, discharged) > 7",
        {},
        LIMIT,
        topics=topics("dates"),
    ),
    Asked(
        "visits: weekends in the winter",
        "SELECT COUNT(*) AS visits, AVG(cost) AS cost FROM visits WHERE EXTRACT(isodow FROM day) IN (6, 7) "
        "AND MONTH(day) IN (12, 1, 2)",
        {},
        LIMIT,
        topics=topics("dates"),
    ),
    Asked(
        "visits: week by week in 2023",
        "SELECT WEEK(day) AS week, COUNT(*) AS visits FROM visits WHERE day BETWEEN DATE '2023-01-02' AND "
        "DATE '2023-12-31' GROUP BY week",
        {},
        LIMIT,
        topics=topics("dates"),
    ),
    Asked(
        "visits: the last thirty days of the year",
        "SELECT COUNT(*) FROM visits WHERE day >= DATE '2024-12-31' - INTERVAL 30 DAY",
        {},
        LIMIT,
        topics=topics("dates"),
    ),
    Asked(
        "visits: months as text",
        "SELECT STRFTIME(day, '%Y-%m') AS month, SUM(cost) AS cost FROM visits WHERE emergency GROUP BY month",
        {"month": [f"{day:%Y-%m}" for day in MONTHS]},
        LIMIT,
        topics=topics("dates"),
    ),
    Asked(
        "visits: night and day",
        "SELECT CASE WHEN HOUR(admitted) BETWEEN 7 AND 18 THEN 'day' ELSE 'night' END AS shift, COUNT(*) AS visits, "
        "AVG(cost) AS cost FROM visits GROUP BY shift",
        {},
        LIMIT,
        topics=topics("dates"),
    ),
    Asked(
        "visits: patients by ward",
        "SELECT ward, COUNT(DISTINCT person) AS patients FROM visits GROUP BY ward ORDER BY patients DESC",
        _BY_WARD,
        LIMIT,
    ),
    Asked(
        "visits: kinds of diagnosis",
        "SELECT LEFT(diagnosis, 1) AS chapter, COUNT(*) AS visits, COUNT(DISTINCT diagnosis) AS kinds FROM visits "
        "GROUP BY chapter",
        {"chapter": list("IJKO")},
        LIMIT,
    ),
    Asked(
        "visits: emergencies by ward",
        "SELECT ward, COUNT(*) FILTER (WHERE emergency) / COUNT(*) AS share FROM visits GROUP BY ward",
        _BY_WARD,
        LIMIT,
    ),
    Asked(
        "visits: the cost of a patient",
        "SELECT AVG(total) AS cost FROM (SELECT person, SUM(cost) AS total FROM visits GROUP BY person)",
        {},
        LIMIT,
        topics=topics("subquery"),
    ),
    Asked(
        "visits: how often patients come",
        "SELECT visits, COUNT(*) AS patients FROM (SELECT person, COUNT(*) AS visits FROM visits GROUP BY person) "
        "GROUP BY visits ORDER BY visits",
        {"visits": list(range(1, 13))},
        LIMIT,
        topics=topics("subquery"),
    ),
    Asked(
        "visits: patients who come back in a month",
        "WITH spans AS (SELECT person, MIN(day) AS first, MAX(day) AS last FROM visits GROUP BY person) "
        "SELECT COUNT(*) FROM spans WHERE last - first BETWEEN 1 AND 30",
        {},
        LIMIT,
        topics=topics("subquery", "dates"),
    ),
    Asked(
        "visits: dear patients by ward",
        "SELECT ward, COUNT(*) AS patients FROM (SELECT person, ward, SUM(cost) AS total FROM visits "
        "GROUP BY person, ward HAVING SUM(cost) > 1000) GROUP BY ward",
        _BY_WARD,
        LIMIT,
        topics=topics("subquery"),
    ),
    Asked(
        "visits: first visits by month",
        "WITH firsts AS (SELECT person, MIN(day) AS first FROM visits GROUP BY person) "
        "SELECT DATE_TRUNC('month', first) AS month, COUNT(*) AS patients FROM firsts GROUP BY 1 ORDER BY 1",
        {"month": MONTHS},
        LIMIT,
        topics=topics("subquery", "dates"),
    ),
    Asked(
        "visits: wards of patients with an emergency",
        "SELECT ward, COUNT(*) AS visits FROM visits WHERE person IN (SELECT person FROM visits WHERE emergency) "
        "GROUP BY ward",
        _BY_WARD,
        LIMIT,
        topics=topics("subquery"),
    ),
    Asked(
        "visits: above the average cost",
        "SELECT COUNT(*) FROM visits WHERE cost > (SELECT AVG(cost) FROM visits)",
        {},
        LIMIT,
        topics=topics("subquery"),
    ),
    Asked(
        "visits: by building",
        "SELECT w.building, COUNT(*) AS visits, AVG(v.cost) AS cost FROM visits v JOIN wards w ON v.ward = w.name "
        "GROUP BY w.building",
        {"building": ["North", "South"]},
        LIMIT,
        topics=topics("join"),
    ),
    Asked(
        "visits: by city of the patient",
        "SELECT p.city, SUM(v.cost) AS cost FROM visits v JOIN patients p ON v.person = p.person GROUP BY p.city "
        "ORDER BY cost DESC",
        {"city": CITIES},
        LIMIT,
        topics=topics("join"),
    ),
    Asked(
        "visits: women by month in large wards",
        "SELECT DATE_TRUNC('quarter', day) AS quarter, COUNT(*) AS visits FROM visits JOIN patients USING (person) "
        "JOIN wards ON ward = name WHERE sex = 'f' AND beds >= 40 GROUP BY quarter ORDER BY quarter",
        {"quarter": MONTHS[::3]},
        LIMIT,
        topics=topics("join", "dates"),
    ),
]
