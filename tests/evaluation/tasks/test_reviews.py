"""Classification from a known folder: Chinese hotel reviews."""

from __future__ import annotations

import json

import pytest

from mlm_lab.errors import UserError
from tests.evaluation.protocol import evaluation, task


def test_the_hotel_reviews_are_all_read(shared_data, tmp_path):
    data = task("hotel_reviews").load(evaluation(data_dir=str(shared_data)), tmp_path)
    parts = (data.train, data.dev, data.extra["test"])
    assert [len(part) for part in parts] == [6213, 776, 776] and data.label_names == ("0", "1")
    assert sum(example.label for example in data.train) == 4253


def test_it_lies_under_the_data_folder_or_where_the_user_says(tmp_path):
    with pytest.raises(UserError, match=r"zh/cls-chnsenticorp-hotel/train.jsonl: evaluation.data_dir=PATH"):
        task("hotel_reviews").check(evaluation())
    elsewhere = tmp_path / "reviews.jsonl"
    elsewhere.write_text("\n".join(json.dumps({"text": f"好{i}", "label": i % 2}) for i in range(40)), encoding="utf-8")
    chosen = evaluation(data_dir=str(tmp_path), files={"hotel_reviews": str(elsewhere)})
    assert len(task("hotel_reviews").load(chosen, tmp_path).train) > 20
