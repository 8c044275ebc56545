"""report.html in a browser: nothing fails, every figure is seen, every table sorts. Skipped where there is no Chromium."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from mlm_lab.report.__main__ import main
from mlm_lab.report.document import Document, Paragraph, Table
from mlm_lab.report.html import render
from tests.report import synthetic

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WATCH = """<script>
const failed = [];
window.addEventListener("error", event => failed.push(String(event.message || event.target)), true);
for (const kind of ["error", "warn"]) console[kind] = (...words) => failed.push(words.join(" "));
</script>"""
LOOK = """<script>
const seen = element => { const box = element.getBoundingClientRect(); return box.width > 100 && box.height > 100; };
const columns = table => [...table.tHead.rows[0].cells].map((head, column) => {
  const read = () => [...table.tBodies[0].rows].map(row => row.cells[column].textContent.trim());
  const orders = [read()];
  for (let click = 0; click < 3; click++) { head.click(); orders.push(read()); }
  return orders;
});
const found = {
  failed, hacked: window.hacked === true, figures: document.querySelectorAll("figure").length,
  seen: [...document.querySelectorAll("figure svg")].filter(seen).length,
  shapes: [...document.querySelectorAll("figure svg")].map(svg => svg.querySelectorAll("path, use, line").length),
  tables: [...document.querySelectorAll("table")].map(columns), wide: document.documentElement.scrollWidth > window.innerWidth,
};
const answer = document.createElement("pre"); answer.id = "found"; answer.textContent = JSON.stringify(found); document.body.append(answer);
</script>"""


def open_page(page: str, folder: Path) -> dict:
    """What a browser finds in it."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium, which is not on this machine")
    file = folder / "looked_at.html"
    file.write_text(page.replace("<style>", f"{WATCH}<style>", 1).replace("</body>", f"{LOOK}</body>"), encoding="utf-8")
    words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}"]
    words += ["--window-size=1280,900", "--dump-dom", file.as_uri()]
    done = subprocess.run([CHROMIUM, *words], capture_output=True, text=True, timeout=120)
    answer = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert answer, done.stderr[-2000:]
    return json.loads(unescape(answer[1]))


def rank(text: str) -> float:
    found = re.match(r"(?:< )?([-+]?[\d,]*\.?\d+)", text)
    return float(found[1].replace(",", "")) if found else float("inf")


@pytest.mark.slow
def test_a_report_is_whole_in_a_browser(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path)
    with contextlib.chdir(tmp_path):
        assert main(["ratios"]) == 0
    found = open_page((tmp_path / "experiments/ratios/report.html").read_text(encoding="utf-8"), tmp_path)
    assert found["failed"] == []
    assert found["figures"] >= 4 and found["seen"] == found["figures"] and min(found["shapes"]) > 10
    assert not found["wide"], "nothing hangs over the side of the page"
    several = [column for table in found["tables"] for column in table if len(column[0]) > 1]
    assert len(several) > 20
    for written, rising, falling, again in several:
        assert again == written and sorted(rising) == sorted(falling) == sorted(written)
    numbers = [column for column in several if all(rank(cell) < float("inf") for cell in column[0])]
    assert len(numbers) > 5
    for _, rising, falling, _ in numbers:
        assert list(map(rank, rising)) == sorted(map(rank, rising)) and list(map(rank, falling)) == sorted(map(rank, rising), reverse=True)


@pytest.mark.slow
def test_what_a_table_holds_is_never_run(tmp_path: Path) -> None:
    evil = "<img src=x onerror='window.hacked=true'></td><script>window.hacked=true</script>"
    rows = [[evil, "2"], ["b", "-"], ["a", "10,000"]]
    page = render(Document(f"A {evil}", [Paragraph(evil), Table("t", evil, ["name", "n"], rows)]), {})
    found = open_page(page, tmp_path)
    assert found["failed"] == [] and not found["hacked"]
    (names, values) = found["tables"][0]
    assert [row[:1] for row in names[1]] == ["<", "a", "b"]
    assert values[1] == ["2", "10,000", "-"] and values[2] == ["10,000", "2", "-"]
