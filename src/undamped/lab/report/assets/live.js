"use strict";
(function () {
  const every = 1000;
  const plots = document.getElementById("plots");

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
      const lines = [["valid", "#0072B2", "solid"], ["train", "#0072B2", "dot"]];
      const traces = lines.map(([part, ink, dash]) => Object.assign(
        { type: "scatter", mode: "lines+markers", name: part, line: { color: ink, dash: dash } },
        column(rows, part + name.slice(5))));
      Chart.draw(panel(name, title), { traces, layout: {
        xaxis: { title: { text: "step" } },
        yaxis: { title: { text: title }, type: title === "loss" ? "log" : "linear" },
      } });
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
