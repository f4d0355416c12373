"""
Tool: query
Description: Run one SELECT over the table orders (id, day, product, pieces, price).

Input:
  sql (str): The SELECT.

Output:
  rows (list): The rows, each a list of values; at most 1,000.
"""

import csv
import json
import sqlite3
import sys


def execute(sql: str) -> dict[str, list[list[object]]]:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE orders (id INTEGER, day TEXT, product TEXT, pieces INTEGER, price REAL)")
    with open("data/orders.csv", newline="") as file:
        rows = list(csv.reader(file))[1:]
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", rows)
    database.execute("PRAGMA query_only = on")
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)  # ATTACH would make and read other files
    return {"rows": [list(row) for row in database.execute(sql).fetchmany(1_000)]}


if __name__ == "__main__":
    print(json.dumps(execute(**json.load(sys.stdin))))
