"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 40rem)");
  const config = {
    responsive: true, displaylogo: false, scrollZoom: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "sendDataToCloud"],
  };
  const element = (plot) => document.getElementById("plot-" + plot.key);

  function isDark() {
    const chosen = root.dataset.theme;
    return chosen ? chosen === "dark" : system.matches;
  }

  function colour(name) {
    return getComputedStyle(root).getPropertyValue(name).trim();
  }

  function axis(given) {
    return Object.assign({
      automargin: true, gridcolor: colour("--line"), zerolinecolor: colour("--line"),
      linecolor: colour("--line"),
    }, given);
  }

  function layout(plot) {
    return Object.assign({}, plot.layout, {
      xaxis: axis(plot.layout.xaxis), yaxis: axis(plot.layout.yaxis),
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("--ink"), size: narrow.matches ? 11 : 13, family: "system-ui, sans-serif" },
      margin: narrow.matches ? { t: 16, r: 8, b: 44, l: 48 } : { t: 24, r: 16, b: 48, l: 64 },
      showlegend: false, hovermode: "closest",
      hoverlabel: { namelength: -1 },
      dragmode: narrow.matches ? false : "zoom",
    });
  }

  function drawOne(plot) {
    Plotly.react(element(plot), plot.traces, layout(plot), config);
  }

  function nameTheme() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(isDark()));
  }

  function draw() {
    data.plots.forEach(drawOne);
    nameTheme();
  }

  // What is in view first, the rest one by one, so that the page answers in between.
  function drawRest(waiting) {
    if (!waiting.length) {
      root.dataset.drawn = "yes";
      return;
    }
    drawOne(waiting[0]);
    setTimeout(() => drawRest(waiting.slice(1)), 0);
  }

  function show(model, visible) {
    for (const plot of data.plots) {
      for (const trace of plot.traces) {
        if (trace.meta === model) trace.visible = visible;
      }
    }
    for (const part of document.querySelectorAll('[data-model="' + model + '"]')) {
      if (part.tagName !== "INPUT") part.hidden = !visible;
    }
    draw();
  }

  function keys(plot, event) {
    const drawn = element(plot);
    if (!drawn._fullLayout) return;
    const range = drawn._fullLayout.xaxis.range.slice();
    const width = range[1] - range[0];
    const moves = { ArrowLeft: [-0.1, -0.1], ArrowRight: [0.1, 0.1], "+": [0.1, -0.1], "-": [-0.125, 0.125] };
    if (event.key === "0") {
      Plotly.relayout(drawn, { "xaxis.autorange": true, "yaxis.autorange": true });
    } else if (moves[event.key]) {
      const move = moves[event.key];
      Plotly.relayout(drawn, {
        "xaxis.range[0]": range[0] + move[0] * width, "xaxis.range[1]": range[1] + move[1] * width,
      });
    } else {
      return;
    }
    event.preventDefault();
  }

  const visible = (plot) => element(plot).getBoundingClientRect().top < 1.5 * window.innerHeight;
  const first = data.plots.filter(visible);
  first.forEach(drawOne);
  nameTheme();
  for (const plot of data.plots) {
    element(plot).addEventListener("keydown", (event) => keys(plot, event));
  }
  for (const box of document.querySelectorAll("input[data-model]")) {
    box.addEventListener("change", () => show(Number(box.dataset.model), box.checked));
  }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    draw();
  });
  system.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
  let before = null;
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme || "";
    root.dataset.theme = "light";
    for (const part of document.querySelectorAll("details")) part.open = true;
    draw();
  });
  window.addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before; else delete root.dataset.theme;
    draw();
  });
  root.dataset.ready = "yes";
  setTimeout(() => drawRest(data.plots.filter((plot) => !first.includes(plot))), 0);
})();
