"""The page in a real browser: Debian's chromium, driven by Playwright, without a network."""

import shutil

import numpy as np
import pytest
import torch

import undamped
from lab.report.test_report import big_report
from undamped.lab import report
from undamped.lab.report.runs import report_run
from undamped.lab.report.watch import Watch
from undamped.lab.training import fit
from undamped.lab.training.run import Run

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    # The driver's event loop closes its pipes after the interpreter has begun to look away.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    torch.manual_seed(0)
    reports = [
        report.diagnose(net, 80) for net in (undamped.nn.UnICORNN(2, 8), undamped.nn.LSTM(2, 8))
    ]
    return report.write(tmp_path_factory.mktemp("page") / "page.html", reports)


@pytest.fixture(scope="module")
def forecast_page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forecast")
    months = np.arange(120)
    noise = np.random.default_rng(0).normal(size=120)
    sales = 100 + 0.8 * months + 20 * np.sin(2 * np.pi * months / 12) + 4 * noise
    rows = [f"{m},{value:.2f}" for m, value in zip(months, sales, strict=True)]
    (folder / "sales.csv").write_text("time,sales\n" + "\n".join(rows) + "\n")
    options = {"file": str(folder / "sales.csv"), "target": "sales", "horizon": 6}
    run = fit("ridge-lags", "recordings", task_options=options, out=folder, progress=False)
    return report.write(folder / "forecast.html", [report_run(run)])


@pytest.fixture
def opened(browser, page_file):
    def open_page(width=1280, height=900, scheme="light", address=None):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
        )
        page = context.new_page()
        page.problems, page.requests = [], []
        page.on("console", lambda m: page.problems.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: page.problems.append(str(e)))
        page.on("request", lambda r: page.requests.append(r.url))
        page.goto(address or page_file.as_uri())
        page.wait_for_selector("html[data-drawn=yes]")
        return page

    yield open_page
    for context in browser.contexts:
        context.close()


def lines(page, plot):
    return page.locator(f"#plot-{plot} g.trace").count()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_opens_offline_without_errors_and_draws_everything(opened, width, scheme):
    page = opened(width=width, scheme=scheme)
    assert page.problems == []
    assert all(url.startswith("file:") for url in page.requests)
    assert lines(page, "gradient_flow") == 2
    assert lines(page, "recall") == 2
    assert lines(page, "spectrum") == 3  # two models and the unit circle
    assert page.locator("#plot-gradient_flow svg.chart").bounding_box()["width"] > 0.8 * width * (
        0.6 if width > 1000 else 1
    )
    # Nothing sticks out sideways, on a phone least of all.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")


def test_models_and_theme_are_switched_with_the_keyboard(opened):
    page = opened()
    page.locator("input[data-model='1']").focus()
    page.keyboard.press("Space")
    assert lines(page, "gradient_flow") == 1
    assert not page.locator("ul.verdicts > li[data-model='1']").is_visible()
    page.keyboard.press("Space")
    assert lines(page, "gradient_flow") == 2
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert dark != "rgb(255, 255, 255)"
    assert page.problems == []


def test_plots_are_zoomed_with_keys_and_hovered(opened):
    page = opened()
    plot = page.locator("#plot-gradient_flow")
    plot.focus()
    span = "document.getElementById('plot-gradient_flow')._chart.spans[0]"
    before = page.evaluate(span)
    page.keyboard.press("+")
    after = page.evaluate(span)
    assert after[1] - after[0] < before[1] - before[0]
    page.keyboard.press("0")
    assert np.allclose(page.evaluate(span), before)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    at = page.evaluate("document.getElementById('plot-gradient_flow')._chart.points[40].at")
    page.mouse.move(box["x"] + at[0], box["y"] + at[1])
    page.wait_for_selector("#plot-gradient_flow .hovertext")
    assert "unicornn" in page.locator("#plot-gradient_flow .hovertext").text_content()


def test_a_mouse_selects_an_area_and_a_double_click_resets(opened):
    page = opened()
    plot = page.locator("#plot-gradient_flow")
    plot.scroll_into_view_if_needed()
    spans = "document.getElementById('plot-gradient_flow')._chart.spans"
    before, box = page.evaluate(spans), plot.bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 200)
    page.mouse.up()
    after = page.evaluate(spans)
    assert all(a[1] - a[0] < b[1] - b[0] for a, b in zip(after, before, strict=True))
    plot.dblclick(position={"x": 300, "y": 150})
    assert np.allclose(page.evaluate(spans), before)
    assert page.problems == []


def test_a_curve_of_one_point_has_a_marker(opened, tmp_path):
    from dataclasses import replace

    curve = [{"step": 0, "valid_loss": 1.0}, {"step": 10, "valid_loss": 0.5, "valid_mse": 2.0}]
    path = report.write(tmp_path / "one.html", [replace(big_report(0), curve=curve)])
    page = opened(address=path.as_uri())
    assert page.locator("#plot-curve-1 g.trace path:not([fill=none])").count() == 1
    assert page.problems == []


def test_the_confusion_matrix_has_numbers_and_all_labels(opened, tmp_path):
    from undamped.lab.instruments.confusion import Confusion

    names = tuple(f"class {index}" for index in range(24))
    counts = np.diag(np.arange(24)) + 1
    path = report.write(
        tmp_path / "matrix.html",
        [report.ModelReport("bank", results={"confusion": Confusion(names, counts, "bank")})],
    )
    page = opened(address=path.as_uri())
    texts = page.locator("#plot-confusion text").all_text_contents()
    assert all(texts.count(name) == 2 for name in names)
    assert "24" in texts and page.problems == []


def test_a_page_of_forecasts_leads_with_the_forecast(opened, forecast_page):
    page = opened(width=390, address=forecast_page.as_uri())
    assert page.problems == []
    # Score and naive baseline, then the forecast with its band, then errors and coverage.
    assert page.locator("table.scores tr").count() == 2
    headings = page.locator("h2").all_text_contents()
    assert headings[:3] == ["Verdict", "Forecasts and true values", "Error by step ahead"]
    legend = page.locator("#plot-forecast + ul.legend li").all_text_contents()
    assert legend == ["true values", "80 % band", "forecast"]
    assert "% of the true values are inside the 80 % band" in page.inner_text("#verdict")
    assert page.locator("section[aria-labelledby=h-table-forecast] tbody tr").count() == 6
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser, page_file, forecast_page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for path in (page_file, forecast_page):
        # The policy of the page refuses the program of axe, as any other.
        context = browser.new_context(color_scheme=scheme, bypass_csp=True)
        page = context.new_page()
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-drawn=yes]")
        violations = axe.run(page).response["violations"]
        serious = [v["id"] for v in violations if v["impact"] in ("serious", "critical")]
        assert not serious, path.name
        context.close()


def test_every_control_is_reached_with_tab(opened):
    page = opened()
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {
        "theme",
        "INPUT",
        "plot-gradient_flow",
        "plot-recall",
        "plot-spectrum",
        "SUMMARY",
    } <= reached


def test_prints_in_light_with_everything_unfolded(opened):
    page = opened(scheme="dark")
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details").first.get_attribute("open") is not None
    assert not page.locator("#theme").is_visible()
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert background == "rgb(255, 255, 255)"
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.problems == []


def test_nasty_names_run_nothing(opened, tmp_path):
    from dataclasses import replace

    nasty = (
        "<img src=x onerror=\"document.title='hit'\"></script><script>document.title='hit'</script>"
    )
    path = report.write(
        tmp_path / "nasty.html", [replace(big_report(0), name=nasty, verdict=nasty)]
    )
    page = opened(address=path.as_uri())
    assert page.title() != "hit"
    assert page.locator("img").count() == 0
    assert page.problems == []


ATTACK = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"


def test_column_names_run_nothing(opened, tmp_path):
    from dataclasses import replace

    curve = [{"step": step, f'valid_"> {ATTACK}': 1.0} for step in range(3)]
    path = report.write(tmp_path / "columns.html", [replace(big_report(0), curve=curve)])
    page = opened(address=path.as_uri())
    assert page.title() != "hit"
    assert page.locator("img").count() == 0
    assert page.problems == []
    assert lines(page, "curve-0") == 1


def test_the_policy_stops_scripts_that_are_not_the_page_s(opened, tmp_path):
    path = report.write(tmp_path / "page.html", [big_report(0)])
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("<main>", f"<main>{ATTACK}", 1), encoding="utf-8")
    page = opened(address=path.as_uri())
    assert page.locator("img").count() == 1
    assert page.title() != "hit"
    assert any("Content Security Policy" in problem for problem in page.problems)
    assert lines(page, "gradient_flow") == 1


def test_a_motion_plays_and_names_run_nothing(browser, tmp_path):
    from undamped.lab.instruments.motion_paths import MotionPaths

    times = np.linspace(0, 1, 20)
    path = np.stack([np.cos(times), np.sin(times)], axis=-1)[:, None]
    name = f"__SCENE__ __POLICY__ {ATTACK}"
    picture = MotionPaths(times, path, path, rods=((0, 1),), axes=("x", "y"), equal=True)
    report.animate({name: picture}, tmp_path / "motion.html")
    page = browser.new_page()
    problems = []
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.goto((tmp_path / "motion.html").as_uri())
    assert page.locator("canvas").count() == 2
    assert page.locator("output").inner_text() != ""
    assert page.locator("h1").inner_text().endswith(name)
    assert page.locator("img").count() == 0
    assert problems == []
    page.close()


def test_ten_runs_of_a_thousand_points(opened, tmp_path):
    path = report.write(tmp_path / "ten.html", [big_report(i) for i in range(10)])
    page = opened(address=path.as_uri())
    assert lines(page, "gradient_flow") == 10
    timing = "performance.timing.domComplete - performance.timing.navigationStart"
    # Figures to read with -s; machines differ.
    print(f"{path.stat().st_size / 1e6:.2f} MB, ready after {page.evaluate(timing)} ms")


def test_live_page_follows_a_run(browser, tmp_path):
    run = Run.create(tmp_path, "run")
    rows = [{"step": 1, "train_loss": 2.0, "valid_loss": 1.5}]
    run.update(status="running", model={"name": "lstm"}, task={"name": "copy"})
    run.write_metrics(rows)
    with Watch(run.path) as watch:
        page = browser.new_page()
        problems = []
        page.on("pageerror", lambda e: problems.append(str(e)))
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.goto(watch.url)
        page.wait_for_selector("#plot-valid_loss svg.chart")
        assert page.locator("#title").inner_text() == "lstm on copy"
        run.write_metrics([*rows, {"step": 7, "train_loss": 1.0, "valid_loss": 1.0}])
        run.update(status="finished")
        sync_api.expect(page.locator("#status")).to_contain_text("step 7")
        assert problems == []
        page.close()


def test_the_page_of_a_sweep_draws_everything(opened, tmp_path):
    pytest.importorskip("optuna")
    from undamped.lab.sweeps import Plan, SweepFolder, Trial
    from undamped.lab.sweeps.page import write_page

    space = {"train.learning_rate": "1e-3..1e-1:log", "model.kind": "a,b"}
    folder = SweepFolder.join(tmp_path / "sweep", Plan("adding", "rnn", {}, space), "mse", False)
    trials = [
        Trial(
            n, "finished", 1 / (n + 1), {"train.learning_rate": 10**-n, "model.kind": kind}, 1, ""
        )
        for n, kind in ((1, "a"), (2, "b"), (3, "a"))
    ]
    written = write_page(folder, trials, {"train.learning_rate": 0.8, "model.kind": 0.2})
    page = opened(address=written.absolute().as_uri())
    assert page.problems == []
    assert page.locator(".plot svg.chart").first.is_visible()
    assert page.locator(".plot").count() == 5
    assert page.locator("#plot-parallel g.trace").count() == 3
    assert page.locator("#plot-history text.title >> nth=1").text_content() == "mse"
