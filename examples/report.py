"""A report for a reviewer: two private answers, charged to one account, and what they cost.

Run it with `python examples/report.py`; it needs `pip install '.[all]'` and writes demo/example.html.
"""

from pathlib import Path

import discreet as dp
from discreet.apps.report import ReleasedTable, collect, render


def main() -> None:
    folder = Path("demo")
    folder.mkdir(exist_ok=True)
    for old in folder.glob("example.ledger*"):
        old.unlink()
    account = dp.Ledger(folder / "example.ledger").account("adult", budget=dp.ApproxDP(1.0, 1e-6))
    people = dp.Private(dp.datasets.adult(), account=account)

    ages = people.histogram("age", edges=range(10, 100, 10)).release(epsilon=0.2, purpose="ages")
    hours = people.group_by("sex", keys=dp.datasets.SEX).mean("hours_per_week", bounds=(0, 100))
    worked = hours.release(epsilon=0.2, purpose="hours by sex")

    answers = [
        ReleasedTable("People by age", tuple(ages.rows()), ages.group_columns, "Cost: ε = 0.2"),
        ReleasedTable("Hours worked per week, by sex", tuple(worked.rows()), worked.group_columns, "Cost: ε = 0.2"),
    ]
    report = collect(account, title="The Adult data", answers=answers, commands=["python examples/report.py"])
    page = folder / "example.html"
    page.write_text(render(report), encoding="utf-8")

    print(worked)
    recognized = report.trade_off.recognized(report.trade_off.promised)
    print(f"An attacker with 5% false alarms recognizes at most {recognized:.0%} of the people.")
    print(f"Wrote {page}.")


if __name__ == "__main__":
    main()
