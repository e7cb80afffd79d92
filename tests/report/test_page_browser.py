"""The report in a real browser: look, filter, decide by keyboard, undo, reload, save, apply."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from own_data import colafier, fruit, quickly, read_labels

from colafier.ingest.labels import LONGEST

pytestmark = pytest.mark.usefixtures("quick")

SECONDS = 30  # a browser on a busy machine
OWNED = "document.title='owned'"
HOSTILE = (
    f"<img src=x onerror={OWNED}>",
    "\"'><b>bold</b>&amp;",
    "\u202egnp.תות",  # right to left, with an override
    "🍐" * 40 + "very long " * 30,
)


@pytest.fixture(scope="module")
def browser(need: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    need("browser")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (
        "--headless=new",
        "--no-sandbox",  # the tests may run as root
        "--disable-dev-shm-usage",
        "--window-size=1366,900",
        "--host-resolver-rules=MAP * ~NOTFOUND",  # no network
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService("/usr/bin/chromedriver")
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


class Page:
    """A report that is open."""

    def __init__(self, driver: Any, path: Path, downloads: Path) -> None:
        self.driver = driver
        self.downloads = downloads
        behavior = {"behavior": "allow", "downloadPath": str(downloads)}
        driver.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
        driver.get(path.as_uri())
        assert self.run("return document.documentElement.dataset.ready") == "yes", self.errors()

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def choose(self, field: str, value: str) -> None:
        script = """const s = document.getElementById(arguments[0]);
        s.value = [...s.options].find((o) => o.textContent === arguments[1]).value;
        s.dispatchEvent(new Event("change", {bubbles: true}))"""
        self.run(script, field, value)

    def cards(self) -> list[int]:
        return self.run(
            "return [...document.querySelectorAll('#gallery .card')].map((c) => +c.dataset.row)"
        )

    def selected(self) -> int:
        return self.run("return +document.querySelector('.card[aria-current=true]').dataset.row")

    def marks(self) -> int:
        return self.run("return document.querySelectorAll('#gallery .mark').length")

    def saved(self) -> Path:
        path = self.downloads / "decisions.json"
        path.unlink(missing_ok=True)
        self.driver.find_element("id", "save").click()
        deadline = time.monotonic() + 30
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return path


@pytest.fixture(scope="module")
def run(need: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a table whose classes, columns and values are hostile."""
    need("browser")  # before the training
    folder = tmp_path_factory.mktemp("hostile")
    frame = fruit(160, wrong=0.25).rename(columns={"weight": HOSTILE[0], "width": "</script>"})
    frame["label"] = frame["label"].map(dict(zip(["apple", "pear", "plum"], HOSTILE, strict=False)))
    colors = np.array([HOSTILE[0], "=1+1", HOSTILE[3]])
    frame["color"] = np.random.default_rng(0).choice(
        colors, len(frame)
    )  # says nothing about the class
    frame.to_csv(folder / "fruit.csv", index=False)
    quickly(folder / "fruit.csv", folder / "out", method="colafier", epochs=12)
    return folder / "out"


@pytest.fixture
def page(run: Path, browser: Any, tmp_path: Path) -> Iterator[Page]:
    opened = Page(browser, run / "report.html", tmp_path)
    yield opened
    opened.run("localStorage.clear()")


def test_it_opens_without_network_or_errors(page: Page) -> None:
    assert page.errors() == []
    fetched = page.run("return performance.getEntriesByType('resource').map((e) => e.name)")
    assert [name for name in fetched if not name.startswith("data:")] == []
    assert "probably wrong" in page.text("#summary")
    assert page.run("return document.getElementById('scores')") is None  # the truth is not known
    assert page.run("return document.querySelectorAll('#charts > figure').length") == 4


def test_hostile_texts_are_shown_as_texts(page: Page) -> None:
    assert page.run("return document.title").startswith("fruit.csv")
    assert page.run("return document.querySelectorAll('main b, main img').length") == 0
    shown = page.run(
        "return [...document.querySelectorAll('#f-original option')].map((o) => o.textContent)"
    )
    assert set(shown[1:]) == set(HOSTILE[:3])
    assert HOSTILE[0] in page.text("#panel")
    wide = page.run("return document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0  # nothing pushes the page out of the window


def test_filters_search_and_order(page: Page, run: Path) -> None:
    lines = read_labels(run)
    assert len(page.cards()) == 24
    page.choose("f-original", HOSTILE[1])
    page.choose("f-action", "relabel")
    wanted = lines[lines["original_label"].eq(HOSTILE[1]) & lines["action"].eq("relabel")]
    assert set(page.cards()) <= set(wanted["row"].astype(int))
    assert f"({len(wanted)})" in page.text("#mode-table")
    page.driver.find_element("id", "f-reset").click()
    page.choose("f-sort", "row number")
    time.sleep(0.1)
    page.choose("f-sort", "row number")
    assert page.cards() == sorted(page.cards())
    page.run(
        "const s = document.getElementById('f-search'); s.value = 'no such row';"
        "s.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    assert page.cards() == []
    assert "No row" in page.text("#nothing")


def test_doubtful_rows_come_first(page: Page, run: Path) -> None:
    lines = read_labels(run)
    kept = lines["action"].eq("keep")
    order = lines.assign(kept=kept, q=lines["label_quality"].astype(float))
    expected = order.sort_values(["kept", "q"], kind="stable")["row"].astype(int)
    quality = order["q"].to_numpy()
    assert quality[page.cards()] == pytest.approx(quality[expected[:24].to_numpy()], abs=1e-4)


def test_table_goes_page_by_page(page: Page) -> None:
    page.driver.find_element("id", "mode-table").click()
    rows = "return document.querySelectorAll('#table tbody tr').length"
    assert page.run(rows) == 50
    page.driver.find_element("id", "page-next").click()
    assert page.text("#page-now") == "2 of 4"
    for _ in range(2):
        page.driver.find_element("id", "page-next").click()
    assert page.run(rows) == 10
    assert page.run("return document.getElementById('page-next').disabled")


def test_evidence_is_shown(page: Page, run: Path) -> None:
    why = page.text("#why")
    for part in ("nearest rows", "original label", "LID", "during training", "Votes"):
        assert part in why
    stored = json.loads((run / "evidence.json").read_text())["rows"]
    (entry,) = (entry for entry in stored if entry["row"] == page.selected())
    voters = [voter for voter, _ in entry["votes"]]
    assert {"classifier", "LID-dis, strong view"} < set(voters)
    for voter in voters:
        assert voter in why


def test_predicted_and_suggested_label_are_shown(page: Page, run: Path) -> None:
    row = page.selected()
    line = read_labels(run).loc[row]
    shown = page.run(
        """return Object.fromEntries([...document.querySelectorAll('#panel .labels dt')].map(
        (term) => [term.innerText, term.nextElementSibling.textContent]))"""
    )
    names = {"original": "original_label", "predicted": "predicted_label",
             "suggested": "suggested_label", "now": "label"}  # fmt: skip
    assert shown == {key: line[name] for key, name in names.items()}


def test_a_run_with_known_truth_has_scores(run: Path, browser: Any, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    evidence = json.loads((copy / "evidence.json").read_text())
    lines = read_labels(copy)
    evidence["truth"] = [evidence["classes"].index(label) for label in lines["predicted_label"]]
    (copy / "evidence.json").write_text(json.dumps(evidence))
    (copy / "record.json").write_text(json.dumps({"method": "colafier", "test_accuracy": 0.875}))
    colafier("report", copy)
    page = Page(browser, copy / "report.html", tmp_path)
    assert page.errors() == []
    scores = page.text("#scores")
    wrong = int(lines["original_label"].ne(lines["predicted_label"]).sum())
    assert f"{wrong} of {len(lines)} original labels are wrong" in scores
    assert "87.5%" in scores
    assert "truth" in page.text("#panel .labels")
    assert "right now" in page.text("#charts")


def test_review_by_keyboard_from_start_to_end(
    page: Page, run: Path, browser: Any, tmp_path: Path
) -> None:
    first, second, third, fourth, fifth = page.cards()[:5]
    page.press("k", "s", "x", "n")
    assert page.selected() == fifth
    assert page.marks() == 3
    page.press("u")
    assert page.selected() == third
    assert page.marks() == 2
    page.press("x", "o")
    assert page.run("return document.activeElement.id") == "other"
    from selenium.webdriver.common.keys import Keys

    page.press(Keys.HOME, Keys.ENTER)
    assert "4 decided" in page.text("#progress-text")
    browser.refresh()
    assert "4 decided" in page.text("#progress-text")
    page.press("u")  # works across a reload
    assert "3 decided" in page.text("#progress-text")
    path = page.saved()
    content = json.loads(path.read_text(encoding="utf-8"))
    lines = read_labels(run)
    summary = json.loads((run / "summary.json").read_text())
    assert content["format"] == "colafier-decisions-2"
    assert (content["fingerprint"], content["rows"]) == (summary["fingerprint"], len(lines))
    found = {entry["row"]: entry for entry in content["decisions"]}
    assert set(found) == {first, second, third}
    assert fourth not in found
    assert found[first]["label"] == found[first]["original"] == lines.loc[first, "original_label"]
    assert found[second]["label"] == lines.loc[second, "suggested_label"]
    assert (found[third]["choice"], found[third]["label"]) == ("exclude", None)
    copy = shutil.copytree(run, tmp_path / "copy")
    colafier("apply", copy, path)
    after = read_labels(copy)
    assert after.loc[first, "label"] == lines.loc[first, "original_label"]
    assert after.loc[second, "label"] == lines.loc[second, "suggested_label"]
    assert after.loc[third, "action"] == "exclude"
    colafier("report", copy)
    again = Page(browser, copy / "report.html", tmp_path)  # with what the browser has kept
    assert fourth in again.cards()
    assert not {first, second, third} & set(again.cards())
    assert again.text("#progress-text").startswith("0 decided")


def test_buttons_decide_too(page: Page) -> None:
    row = page.cards()[0]
    page.driver.find_element("css selector", "#panel [data-choice=exclude]").click()
    assert "excluded" in page.text(f"[data-row='{row}']")
    assert page.selected() == page.cards()[1]


def test_saved_decisions_are_loaded_again(page: Page, tmp_path: Path) -> None:
    page.press("k", "x")
    path = page.saved()
    page.press("u", "u")
    assert page.marks() == 0
    page.driver.find_element("id", "file").send_keys(str(path))
    _until(lambda: page.marks() == 2)
    other = json.loads(path.read_text()) | {"fingerprint": "another"}
    (tmp_path / "other.json").write_text(json.dumps(other))
    page.driver.find_element("id", "file").send_keys(str(tmp_path / "other.json"))
    _until(lambda: "another data set" in page.text("#message"))


def test_planner_is_refined_by_decisions(page: Page, run: Path) -> None:
    def expected() -> int:
        return int(page.text("#plan-mean").split()[-3].replace(",", ""))

    before = expected()
    lines = read_labels(run)
    wrong = 1 - lines["label_quality"].astype(float)
    kept = lines["action"].eq("keep")
    first = wrong[~kept].sort_values(ascending=False).tolist()
    first += wrong[kept].sort_values(ascending=False).tolist()
    assert before == pytest.approx(sum(first[:100]), abs=0.7)  # as rounded
    low, high = (int(n) for n in page.text("#plan-band").strip(" ()").split()[1::2])
    assert low <= before <= high
    page.press(*"kkkkkkkkkkkk")  # twelve labels that seemed wrong are right
    assert "12 of your decisions" in page.text("#plan-learned")
    assert expected() < before - 6


def test_blocked_storage_is_reported(run: Path, browser: Any, tmp_path: Path) -> None:
    script = "Object.defineProperty(window, 'localStorage', {get() { throw new Error('no') }})"
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    try:
        page = Page(browser, run / "report.html", tmp_path)
        assert "save decisions.json" in page.text("#storage-warning")
        page.press("k")
        assert "1 decided" in page.text("#progress-text")
        page.press("u")
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_everything_has_a_name_for_screen_readers(page: Page) -> None:
    nameless = page.run(
        """return [...document.querySelectorAll("button, select, input, img, svg[role=img]")]
        .filter((e) => !(e.innerText || e.getAttribute("aria-label") || e.getAttribute("alt") ||
          e.closest("label") || e.title)).map((e) => e.outerHTML)"""
    )
    assert nameless == []
    assert page.run("return document.documentElement.lang") == "en"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_stand_out(page: Page, theme: str) -> None:
    """Contrast of 4.5 and more, as WCAG AA asks for."""
    page.run("document.documentElement.dataset.theme = arguments[0]", theme)
    colors = page.run(
        """const s = getComputedStyle(document.documentElement);
        const c = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
        return Object.fromEntries(["back", "card", "text", "soft", "main", "on-main", "warn",
        "warn-text", "tint", "good", "bad"].map((n) => { c.fillStyle = s.getPropertyValue("--" + n);
        c.fillRect(0, 0, 1, 1); return [n, [...c.getImageData(0, 0, 1, 1).data].slice(0, 3)]; }))"""
    )
    pairs = [
        ("text", "back"), ("text", "card"), ("text", "tint"), ("soft", "back"), ("soft", "card"),
        ("main", "card"), ("main", "back"), ("on-main", "main"), ("warn-text", "warn"),
        ("card", "good"), ("card", "bad"),
    ]  # fmt: skip
    low = {p: _contrast(*(colors[name] for name in p)) for p in pairs}
    assert {p: c for p, c in low.items() if c < 4.5} == {}


def test_pictures_and_hostile_file_names(browser: Any, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="pip install 'colafier[images]'")
    random = np.random.default_rng(0)
    for number, label in enumerate((f"<img src=x onerror={OWNED}>", "תות ' & \"")):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for place in range(12):
            pixels = random.integers(0, 100, (12, 12, 3), dtype=np.uint8) + np.uint8(120 * number)
            name = f"{place} <svg onload={OWNED}> \u202e.png"
            image.fromarray(pixels).save(tmp_path / "photos" / label / name)
    quickly(tmp_path / "photos", tmp_path / "out", mode="end-to-end", size=8)
    page = Page(browser, tmp_path / "out" / "report.html", tmp_path)
    assert page.errors() == []
    assert page.run("return document.title").startswith("photos")
    assert page.run("return document.querySelectorAll('#gallery img').length") == 24
    whole = "return [...document.images].every((i) => i.complete && i.naturalWidth > 0)"
    _until(lambda: page.run(whole))
    assert "<svg onload" in page.text("#panel")
    assert len(pd.unique(read_labels(tmp_path / "out")["original_label"])) == 2


def test_very_long_hostile_names_open_in_seconds(browser: Any, tmp_path: Path) -> None:
    frame = fruit(120, wrong=0.25)
    classes = [(text * LONGEST)[:LONGEST] for text in HOSTILE[:3]]
    frame["label"] = frame["label"].map(dict(zip(frame["label"].unique(), classes, strict=True)))
    frame["color"] += "\u0300" * 20_000  # accents that pile up on one letter
    frame.rename(columns={"weight": HOSTILE[0] * 500}).to_csv(tmp_path / "a.csv", index=False)
    quickly(tmp_path / "a.csv", tmp_path / "out")
    lines = read_labels(tmp_path / "out")
    lines["name"] = [f"{HOSTILE[row % 4]}/{row}" * 1000 for row in range(len(lines))]
    lines.to_csv(tmp_path / "out" / "labels.csv", index=False)
    colafier("report", tmp_path / "out")
    browser.set_page_load_timeout(SECONDS)
    begin = time.monotonic()
    page = Page(browser, tmp_path / "out" / "report.html", tmp_path)
    page.driver.find_element("id", "mode-table").click()
    assert page.run("return document.querySelectorAll('#table tbody tr').length") > 0
    assert time.monotonic() - begin < SECONDS
    assert page.errors() == []
    assert page.run("return document.title") == "a.csv: colafier report"


def _until(holds: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _contrast(one: list[int], other: list[int]) -> float:
    def light(color: list[int]) -> float:
        parts = [v / 255 for v in color]
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)
