"use strict";
(function () {
  const every = 1000;
  const plots = document.getElementById("plots");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function column(rows, name) {
    const kept = rows.filter((row) => name in row);
    return { x: kept.map((row) => row.step), y: kept.map((row) => row[name]) };
  }

  function panel(key, title) {
    let box = document.getElementById("plot-" + key);
    if (box) return box;
    const heading = document.createElement("h2");
    heading.textContent = title;
    box = document.createElement("div");
    box.className = "plot";
    box.id = "plot-" + key;
    box.tabIndex = 0;
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", title + " against the step");
    plots.append(heading, box);
    return box;
  }

  function draw(rows) {
    const names = new Set(rows.flatMap((row) => Object.keys(row)));
    const kinds = Array.from(names).filter((name) => name.startsWith("valid_"));
    for (const name of kinds) {
      const title = name.slice(6).replaceAll("_", " ");
      const lines = [["valid", "#0072B2", "solid"], ["train", "#D55E00", "dot"]];
      const traces = lines.map(([part, ink, dash]) => Object.assign(
        { type: "scatter", mode: "lines+markers", name: part, line: { color: ink, dash: dash } },
        column(rows, part + name.slice(5))));
      const axis = { gridcolor: colour("--line"), automargin: true };
      Plotly.react(panel(name, title), traces, {
        xaxis: Object.assign({ title: { text: "step" } }, axis),
        yaxis: Object.assign({ title: { text: title }, type: title === "loss" ? "log" : "linear" }, axis),
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: colour("--ink") }, margin: { t: 16, r: 8, b: 44, l: 56 },
        legend: { orientation: "h" },
      }, { responsive: true, displaylogo: false });
    }
  }

  async function poll() {
    let again = true;
    try {
      const state = await (await fetch("/state.json")).json();
      document.getElementById("title").textContent = state.title;
      const last = state.rows.length ? state.rows[state.rows.length - 1].step : 0;
      document.getElementById("status").textContent = state.status + ", step " + last;
      draw(state.rows);
      document.documentElement.dataset.ready = "yes";
      again = !["finished", "failed"].includes(state.status);
    } catch (error) {
      document.getElementById("status").textContent = "no longer served: training has ended";
      again = false;
    }
    if (again) setTimeout(poll, every);
  }

  poll();
})();
