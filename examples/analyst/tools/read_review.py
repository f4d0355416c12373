"""
Tool: read_review
Description: Return the text of a customer's review.

Input:
  number (int): The number of the review, from 1.

Output:
  text (str): What the customer wrote.
"""

import json
import sys


def execute(number: int) -> dict[str, str]:
    with open("data/reviews.jsonl") as file:
        reviews = {one["number"]: one["text"] for one in map(json.loads, file)}
    return {"text": reviews[number]}


if __name__ == "__main__":
    print(json.dumps(execute(**json.load(sys.stdin))))
