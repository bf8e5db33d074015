"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const element = (plot) => document.getElementById("plot-" + plot.key);

  function isDark() {
    const chosen = root.dataset.theme;
    return chosen ? chosen === "dark" : system.matches;
  }

  function drawOne(plot) {
    Chart.draw(element(plot), plot);
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
    const moves = { ArrowLeft: [-0.1, -0.1], ArrowRight: [0.1, 0.1], "+": [0.1, -0.1], "-": [-0.125, 0.125] };
    if (event.key === "0") Chart.reset(element(plot));
    else if (moves[event.key]) Chart.move(element(plot), moves[event.key]);
    else return;
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
    nameTheme();
  });
  system.addEventListener("change", nameTheme);
  let width = root.clientWidth;
  window.addEventListener("resize", () => {
    if (root.clientWidth !== width) draw(); // on a phone, scrolling changes the height
    width = root.clientWidth;
  });
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
