"""The closest private form of the 22 queries of TPC-H (decision support; its specification is public).

A person is a customer. Customers, their orders and the lines of these are private; a view names the customer in each
line. Parts, suppliers, nations and regions are public. Answers about single customers, orders or suppliers become
answers about groups that are publicly known.
"""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.questions._question import Asked, topics

#: The most lines, and orders, of one customer that count.
LINES, ORDERS = 100, 25
PRIVATE = {"customer": "c_custkey", "orders": "o_custkey", "lineitem": "l_custkey"}
PUBLIC = ("part", "supplier", "nation", "region")
#: Public bounds, from the specification.
BOUNDS = {
    "l_quantity": (0.0, 50.0),
    "l_extendedprice": (0.0, 105000.0),
    "l_discount": (0.0, 0.1),
    "l_tax": (0.0, 0.08),
    "o_totalprice": (0.0, 500000.0),
    "c_acctbal": (-1000.0, 10000.0),
}
NATIONS = (
    "ALGERIA",
    "ARGENTINA",
    "BRAZIL",
    "CANADA",
    "EGYPT",
    "ETHIOPIA",
    "FRANCE",
    "GERMANY",
    "INDIA",
    "INDONESIA",
    "IRAN",
    "IRAQ",
    "JAPAN",
    "JORDAN",
    "KENYA",
    "MOROCCO",
    "MOZAMBIQUE",
    "PERU",
    "CHINA",
    "ROMANIA",
    "RUSSIA",
    "VIETNAM",
    "SAUDI ARABIA",
    "UNITED KINGDOM",
    "UNITED STATES",
)
_BY_NATION = {"n_name": NATIONS}
_EUROPE = {"n_name": ["FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"]}
_ASIA = {"n_name": ["CHINA", "INDIA", "INDONESIA", "JAPAN", "VIETNAM"]}
_PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_REVENUE = "l_extendedprice * (1 - l_discount)"
_LINES = "JOIN lineitem ON l_orderkey = o_orderkey AND l_custkey = o_custkey"
_JOIN = topics("join")


def files(folder: Path, scale: float) -> None:
    """Write one Parquet file for each table, with `tpchgen-cli`."""
    beside = Path(sys.executable).parent / "tpchgen-cli"
    program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if program is None:
        raise ModuleNotFoundError("tpchgen-cli is not installed: pip install tpchgen-cli")
    command = [program, "parquet", "-s", str(scale), "--output-dir", str(folder)]
    subprocess.run(command, check=True, capture_output=True)


QUESTIONS = [
    Asked(
        "TPC-H 1: pricing summary",
        f"""SELECT l_returnflag, l_linestatus, SUM(l_quantity) AS sum_qty, SUM(l_extendedprice) AS sum_base_price,
            SUM({_REVENUE}) AS sum_disc_price, SUM({_REVENUE} * (1 + l_tax)) AS sum_charge,
            AVG(l_quantity) AS avg_qty, AVG(l_extendedprice) AS avg_price, AVG(l_discount) AS avg_disc,
            COUNT(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY
        GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
        {"l_returnflag": ["A", "N", "R"], "l_linestatus": ["F", "O"]},
        LINES,
    ),
    Asked(
        "TPC-H 2: prices of brass parts from Europe",
        """SELECT n_name, AVG(CLAMP(l_extendedprice / l_quantity, 0, 2200)) AS price
        FROM lineitem JOIN supplier ON s_suppkey = l_suppkey JOIN nation ON n_nationkey = s_nationkey
            JOIN region ON r_regionkey = n_regionkey JOIN part ON p_partkey = l_partkey
        WHERE r_name = 'EUROPE' AND p_type LIKE '%BRASS' GROUP BY n_name ORDER BY price""",
        _EUROPE,
        LINES,
        truth="""SELECT n_name, AVG(l_extendedprice / l_quantity) AS price
        FROM lineitem JOIN supplier ON s_suppkey = l_suppkey JOIN nation ON n_nationkey = s_nationkey
            JOIN region ON r_regionkey = n_regionkey JOIN part ON p_partkey = l_partkey
        WHERE r_name = 'EUROPE' AND p_type LIKE '%BRASS' GROUP BY n_name ORDER BY price""",
        topics=_JOIN,
    ),
    Asked(
        "TPC-H 3: orders not yet shipped, by month",
        f"""SELECT DATE_TRUNC('month', o_orderdate) AS month, SUM({_REVENUE}) AS revenue
        FROM customer JOIN orders ON c_custkey = o_custkey {_LINES}
        WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY month ORDER BY revenue DESC LIMIT 10""",
        {"month": [dt.date(1994, 11, 1), dt.date(1994, 12, 1), dt.date(1995, 1, 1), dt.date(1995, 2, 1)]},
        LINES,
        topics=topics("join", "dates"),
    ),
    Asked(
        "TPC-H 4: late orders by priority",
        f"""SELECT o_orderpriority, COUNT(DISTINCT o_orderkey) AS order_count
        FROM orders {_LINES}
        WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-07-01' + INTERVAL '3' MONTH
            AND l_commitdate < l_receiptdate
        GROUP BY o_orderpriority ORDER BY o_orderpriority""",
        {"o_orderpriority": _PRIORITIES},
        LINES,
        topics=_JOIN,
    ),
    Asked(
        "TPC-H 5: local suppliers in Asia",
        f"""SELECT n_name, SUM({_REVENUE}) AS revenue
        FROM customer JOIN orders ON c_custkey = o_custkey {_LINES} JOIN supplier ON l_suppkey = s_suppkey
            JOIN nation ON s_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey
        WHERE c_nationkey = s_nationkey AND r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01'
            AND o_orderdate < DATE '1994-01-01' + INTERVAL '1' YEAR
        GROUP BY n_name ORDER BY revenue DESC""",
        _ASIA,
        LINES,
        topics=_JOIN,
    ),
    Asked(
        "TPC-H 6: revenue from small discounts",
        """SELECT SUM(l_extendedprice * l_discount) AS revenue FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR
            AND l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND l_quantity < 24""",
        {},
        LINES,
    ),
    Asked(
        "TPC-H 7: trade between two nations",
        f"""SELECT supp_nation, cust_nation, l_year, SUM(volume) AS revenue FROM (
            SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, EXTRACT(year FROM l_shipdate) AS l_year,
                {_REVENUE} AS volume
            FROM lineitem JOIN supplier ON s_suppkey = l_suppkey JOIN customer ON c_custkey = l_custkey
                JOIN nation n1 ON s_nationkey = n1.n_nationkey JOIN nation n2 ON c_nationkey = n2.n_nationkey
            WHERE l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31') AS shipping
        WHERE supp_nation IN ('FRANCE', 'GERMANY') AND cust_nation IN ('FRANCE', 'GERMANY')
            AND supp_nation <> cust_nation
        GROUP BY supp_nation, cust_nation, l_year ORDER BY supp_nation, cust_nation, l_year""",
        {"supp_nation": ["FRANCE", "GERMANY"], "cust_nation": ["FRANCE", "GERMANY"], "l_year": [1995, 1996]},
        LINES,
        topics=topics("join", "subquery", "dates"),
    ),
    Asked(
        "TPC-H 8: market share of Brazil",
        f"""SELECT EXTRACT(year FROM o_orderdate) AS o_year,
            SUM(CASE WHEN n_name = 'BRAZIL' THEN {_REVENUE} ELSE 0 END) / SUM({_REVENUE}) AS mkt_share
        FROM orders {_LINES} JOIN supplier ON s_suppkey = l_suppkey JOIN nation ON n_nationkey = s_nationkey
        WHERE o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31' GROUP BY o_year ORDER BY o_year""",
        {"o_year": [1995, 1996]},
        LINES,
        topics=topics("join", "dates"),
    ),
    Asked(
        "TPC-H 9: sales of green parts",
        f"""SELECT nation, o_year, SUM(amount) AS sum_profit FROM (
            SELECT n_name AS nation, EXTRACT(year FROM o_orderdate) AS o_year, {_REVENUE} AS amount
            FROM orders {_LINES} JOIN supplier ON s_suppkey = l_suppkey JOIN nation ON s_nationkey = n_nationkey
                JOIN part ON p_partkey = l_partkey
            WHERE p_name LIKE '%green%') AS profit
        GROUP BY nation, o_year ORDER BY nation, o_year DESC""",
        {"nation": NATIONS, "o_year": list(range(1992, 1999))},
        LINES,
        topics=topics("join", "subquery", "dates"),
    ),
    Asked(
        "TPC-H 10: returned items by nation",
        f"""SELECT n_name, SUM({_REVENUE}) AS revenue
        FROM customer JOIN orders ON c_custkey = o_custkey {_LINES} JOIN nation ON c_nationkey = n_nationkey
        WHERE o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01' AND l_returnflag = 'R'
        GROUP BY n_name ORDER BY revenue DESC LIMIT 20""",
        _BY_NATION,
        LINES,
        topics=_JOIN,
    ),
    Asked(
        "TPC-H 11: important nations of suppliers",
        """SELECT n_name, SUM(l_quantity) AS sold FROM lineitem JOIN supplier ON s_suppkey = l_suppkey
            JOIN nation ON n_nationkey = s_nationkey
        GROUP BY n_name HAVING SUM(l_quantity) > 1000 ORDER BY sold DESC""",
        _BY_NATION,
        LINES,
        topics=_JOIN,
    ),
    Asked(
        "TPC-H 12: shipping modes and priorities",
        f"""SELECT l_shipmode,
            SUM(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high,
            SUM(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low
        FROM orders {_LINES}
        WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
            AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'
        GROUP BY l_shipmode ORDER BY l_shipmode""",
        {"l_shipmode": ["MAIL", "SHIP"]},
        LINES,
        topics=_JOIN,
    ),
    Asked(
        "TPC-H 13: customers by their number of orders",
        """SELECT c_count, COUNT(*) AS custdist FROM (
            SELECT o_custkey, COUNT(o_orderkey) AS c_count FROM orders
            WHERE o_comment NOT LIKE '%special%requests%' GROUP BY o_custkey) AS c_orders
        GROUP BY c_count ORDER BY custdist DESC, c_count DESC""",
        {"c_count": list(range(1, 31))},
        ORDERS,
        topics=topics("subquery"),
    ),
    Asked(
        "TPC-H 14: the effect of promotions",
        f"""SELECT 100.00 * SUM(CASE WHEN p_type LIKE 'PROMO%' THEN {_REVENUE} ELSE 0 END) / SUM({_REVENUE})
            AS promo_revenue
        FROM lineitem JOIN part ON l_partkey = p_partkey
        WHERE l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-09-01' + INTERVAL '1' MONTH""",
        {},
        LINES,
        topics=_JOIN,
    ),
    Asked(
        "TPC-H 15: the nation of the top suppliers",
        f"""WITH revenue AS (SELECT l_suppkey AS supplier_no, {_REVENUE} AS amount FROM lineitem
            WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-01-01' + INTERVAL '3' MONTH)
        SELECT n_name, SUM(amount) AS total_revenue FROM revenue JOIN supplier ON s_suppkey = supplier_no
            JOIN nation ON n_nationkey = s_nationkey
        GROUP BY n_name ORDER BY total_revenue DESC LIMIT 1""",
        _BY_NATION,
        LINES,
        topics=topics("join", "subquery"),
    ),
    Asked(
        "TPC-H 16: suppliers of parts that are ordered",
        """SELECT p_size, COUNT(DISTINCT l_suppkey) AS supplier_cnt FROM lineitem JOIN part ON p_partkey = l_partkey
        WHERE p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'
            AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
        GROUP BY p_size ORDER BY supplier_cnt DESC""",
        {"p_size": [49, 14, 23, 45, 19, 3, 36, 9]},
        LINES,
        topics=_JOIN,
    ),
    Asked(
        "TPC-H 17: revenue of small orders",
        """SELECT SUM(l_extendedprice) / 7.0 AS avg_yearly FROM lineitem JOIN part ON p_partkey = l_partkey
        WHERE p_brand = 'Brand#23' AND p_container = 'MED BOX' AND l_quantity < 0.2 * 25""",
        {},
        LINES,
        topics=_JOIN,
    ),
    Asked(
        "TPC-H 18: large orders",
        """SELECT COUNT(*) AS large FROM (
            SELECT l_custkey, l_orderkey, SUM(l_quantity) AS quantity FROM lineitem
            GROUP BY l_custkey, l_orderkey HAVING SUM(l_quantity) > 200)""",
        {},
        ORDERS,
        topics=topics("subquery"),
    ),
    Asked(
        "TPC-H 19: discounted revenue",
        f"""SELECT SUM({_REVENUE}) AS revenue FROM lineitem JOIN part ON p_partkey = l_partkey
        WHERE l_shipinstruct = 'DELIVER IN PERSON' AND l_shipmode IN ('AIR', 'AIR REG') AND (
            (p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX') AND l_quantity BETWEEN 1 AND 11)
            OR (p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX') AND l_quantity BETWEEN 10 AND 20)
            OR (p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX') AND l_quantity BETWEEN 20 AND 30))""",
        {},
        LINES,
        topics=_JOIN,
    ),
    Asked(
        "TPC-H 20: suppliers of forest parts",
        """SELECT n_name, COUNT(DISTINCT s_suppkey) AS suppliers FROM lineitem JOIN part ON p_partkey = l_partkey
            JOIN supplier ON s_suppkey = l_suppkey JOIN nation ON n_nationkey = s_nationkey
        WHERE p_name LIKE 'forest%' AND l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
        GROUP BY n_name ORDER BY n_name""",
        _BY_NATION,
        LINES,
        topics=_JOIN,
    ),
    Asked(
        "TPC-H 21: suppliers who kept orders waiting",
        f"""SELECT n_name, COUNT(*) AS numwait
        FROM orders {_LINES} JOIN supplier ON s_suppkey = l_suppkey JOIN nation ON n_nationkey = s_nationkey
        WHERE o_orderstatus = 'F' AND l_receiptdate > l_commitdate
        GROUP BY n_name ORDER BY numwait DESC, n_name LIMIT 100""",
        _BY_NATION,
        LINES,
        topics=_JOIN,
    ),
    Asked(
        "TPC-H 22: customers without orders",
        """SELECT SUBSTRING(c_phone, 1, 2) AS cntrycode, COUNT(*) AS numcust, SUM(c_acctbal) AS totacctbal
        FROM customer WHERE SUBSTRING(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')
            AND c_acctbal > 0 AND c_custkey NOT IN (SELECT o_custkey FROM orders)
        GROUP BY cntrycode ORDER BY cntrycode""",
        {"cntrycode": ["13", "31", "23", "29", "30", "18", "17"]},
        1,
        topics=topics("subquery"),
    ),
]
