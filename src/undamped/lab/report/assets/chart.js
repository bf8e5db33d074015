"use strict";
// Draws a plot as SVG: lines, points, areas, bars and matrices. Traces and axes have the names of
// plotly, which draws the same traces in notebooks but is too large for a page of its own.
const Chart = (() => {
  const NAMESPACE = "http://www.w3.org/2000/svg";
  const DASHES = {
    dash: "8 4", dot: "2 3", dashdot: "8 3 2 3", longdash: "12 4", longdashdot: "12 3 2 3",
  };
  const CIVIDIS = "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838".split(" ");
  const SYMBOLS = {
    circle: (r) => `m${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`,
    diamond: (r) => `m0,${-1.3 * r}l${1.3 * r},${1.3 * r}l${-1.3 * r},${1.3 * r}l${-1.3 * r},${-1.3 * r}z`,
    square: (r) => `m${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
    cross: (r) => `m${-0.4 * r},${-r}h${0.8 * r}v${0.6 * r}h${0.6 * r}v${0.8 * r}h${-0.6 * r}v${0.6 * r}`
      + `h${-0.8 * r}v${-0.6 * r}h${-0.6 * r}v${-0.8 * r}h${0.6 * r}z`,
    "triangle-up": (r) => `m0,${-1.2 * r}l${1.2 * r},${2 * r}h${-2.4 * r}z`,
    x: (r) => `m${-r},${-r}l${2 * r},${2 * r}m0,${-2 * r}l${-2 * r},${2 * r}`,
    star: (r) => `m0,${-r}v${2 * r}m${-r},${-r}h${2 * r}m${-1.7 * r},${-0.7 * r}l${1.4 * r},${1.4 * r}`
      + `m0,${-1.4 * r}l${-1.4 * r},${1.4 * r}`,
    hexagon: (r) => `m${-r},0l${0.5 * r},${-r}h${r}l${0.5 * r},${r}l${-0.5 * r},${r}h${-r}z`,
  };

  function add(parent, tag, attributes, text) {
    const node = document.createElementNS(NAMESPACE, tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }

  // Names are escaped for HTML where they are written; here they become text again, and only text.
  function plain(text) {
    const entities = { lt: "<", gt: ">", quot: '"', "#x27": "'", "#39": "'", amp: "&" };
    return String(text).replaceAll("<br>", " ").replace(/&(lt|gt|quot|#x27|#39|amp);/g, (_, name) => entities[name]);
  }

  function colour(fraction) {
    const at = Math.min(1, Math.max(0, fraction)) * (CIVIDIS.length - 1);
    const low = Math.min(CIVIDIS.length - 2, Math.floor(at));
    return [0, 2, 4].map((k) => {
      const [a, b] = [low, low + 1].map((i) => parseInt(CIVIDIS[i].slice(k, k + 2), 16));
      return Math.round(a + (at - low) * (b - a));
    });
  }

  function power(exponent) {
    const digits = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
    return "10" + Array.from(String(exponent), (digit) => digits[digit]).join("");
  }

  function number(value) {
    const size = Math.abs(value);
    if (size !== 0 && (size >= 1e6 || size < 1e-3)) {
      const [mantissa, exponent] = value.toExponential(2).split("e");
      return (Number(mantissa) === 1 ? "" : Number(mantissa) + "·") + power(Number(exponent));
    }
    return Number(value.toPrecision(4)).toLocaleString("en-US", { maximumFractionDigits: 6 });
  }

  function linearTicks(low, high, count, whole) {
    const rough = (high - low) / Math.max(1, count), size = 10 ** Math.floor(Math.log10(rough));
    const best = size * [1, 2, 5, 10].find((factor) => factor * size >= rough * 0.999);
    const step = whole ? Math.max(1, best) : best;
    const ticks = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) {
      ticks.push([k * step, number(Number((k * step).toPrecision(12)))]);
    }
    return ticks;
  }

  function logTicks(low, high, count) {
    const ticks = [], every = Math.ceil((high - low) / Math.max(1, count));
    const factors = high - low < 2 ? [1, 2, 5] : [1];
    for (let k = Math.floor(low); k <= high; k++) {
      if (k % every !== 0 && factors.length === 1) continue;
      for (const factor of factors) {
        const at = k + Math.log10(factor);
        if (at < low - 1e-9 || at > high + 1e-9) continue;
        ticks.push([at, k < -3 || k > 5 ? (factor > 1 ? factor + "·" : "") + power(k) : number(factor * 10 ** k)]);
      }
    }
    if (ticks.length > 1) return ticks;
    return linearTicks(10 ** low, 10 ** high, count).map(([v, text]) => [Math.log10(v), text]);
  }

  // One axis: `to` turns a value of the data into a coordinate along it, or null.
  function makeAxis(given, values) {
    const spec = given || {};
    const words = spec.type === "category" || values.some((v) => typeof v === "string");
    const names = words ? Array.from(new Set(values.map(String))) : null;
    const whole = values.length > 0 && values.every((v) => v === null || Number.isInteger(v));
    const to = (value) => {
      if (value === null || value === undefined) return null;
      if (names) return names.indexOf(String(value));
      if (spec.type === "log") return value > 0 ? Math.log10(value) : null;
      return Number.isFinite(value) ? value : null;
    };
    function ticks(low, high, count) {
      if (spec.showticklabels === false) return [];
      if (spec.tickvals) return spec.tickvals.map((value, i) => [to(value), plain(spec.ticktext[i])]);
      if (names) return names.map((name, i) => [i, name]);
      return spec.type === "log" ? logTicks(low, high, count) : linearTicks(low, high, count, whole);
    }
    return { spec, names, to, ticks, reversed: spec.autorange === "reversed" };
  }

  function extent(axis, coordinates, padding) {
    if (axis.spec.range) return axis.spec.range.slice();
    if (axis.names) return [-0.5, axis.names.length - 0.5];
    let low = Infinity, high = -Infinity;
    for (const value of coordinates) {
      if (value === null) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (low > high) return [0, 1];
    const span = high > low ? high - low : Math.abs(high) || 1;
    return [low - padding * span, high + padding * span];
  }

  // The values of a trace along an axis; a matrix reaches half a cell beyond its outer points.
  function coordinates(trace, side, axis) {
    if (trace.type !== "heatmap") {
      const along = (trace[side] || []).map(axis.to);
      const isLength = trace.type === "bar" && (side === "x") === (trace.orientation === "h");
      return isLength ? [0, ...along] : along;
    }
    const [first, last] = cells(trace, side, axis);
    return [first, last];
  }

  function cells(trace, side, axis) {
    const count = side === "x" ? trace.z[0].length : trace.z.length;
    const given = trace[side] && trace[side].length ? trace[side].map(axis.to) : null;
    const first = given ? given[0] : 0, last = given ? given[given.length - 1] : count - 1;
    const half = count > 1 ? (last - first) / (count - 1) / 2 : 0.5;
    return [first - half, last + half];
  }

  function draw(element, plot) {
    const traces = plot.traces.filter((trace) => trace.visible !== false);
    const matrix = traces.find((trace) => trace.type === "heatmap");
    const axes = ["x", "y"].map((side) => makeAxis(
      plot.layout[side + "axis"], traces.flatMap((trace) => trace[side] || [])));
    const view = element._view = element._view || {};
    element.replaceChildren();
    const narrow = element.clientWidth < 600, size = narrow ? 11 : 13, letter = 0.56 * size;
    const rows = matrix && axes[1].names ? axes[1].names.length : 0;
    element.style.height = 18 * rows + 110 > element.clientHeight ? 18 * rows + 110 + "px" : "";
    const width = Math.max(240, element.clientWidth), height = element.clientHeight;
    const spans = axes.map((axis, k) => view["xy"[k]] || extent(
      axis, traces.flatMap((trace) => coordinates(trace, "xy"[k], axis)), matrix ? 0 : k ? 0.06 : 0.02));
    const texts = axes.map((axis, k) => axis.ticks(...spans[k], (k ? height : width) / (k ? 55 : 90)));
    const longest = Math.max(2, ...texts[1].map(([, text]) => Math.min(18, text.length)));
    const widest = Math.max(0, ...texts[0].map(([, text]) => text.length));
    const frame = {
      left: longest * letter + 2 * size + 8, top: 12,
      right: matrix ? 64 : Math.min(40, 0.3 * widest * letter + 8), bottom: 2 * size + 18,
    };
    const across = width - frame.left - frame.right;
    const crowded = axes[0].names && widest * letter > 0.9 * across / texts[0].length;
    if (crowded) frame.bottom += Math.min(18, widest) * letter - size + 6;
    const upwards = height - frame.top - frame.bottom;
    if (plot.layout.yaxis && plot.layout.yaxis.scaleanchor && !view.x) equalise(spans, across, upwards);
    const project = (k, value) => {
      const part = (value - spans[k][0]) / (spans[k][1] - spans[k][0]);
      if (k === 0) return frame.left + part * across;
      return frame.top + (axes[1].reversed ? part : 1 - part) * upwards;
    };
    const svg = add(element, "svg", { width, height, "font-size": size, class: "chart", "aria-hidden": "true" });
    const clip = "clip-" + element.id;
    const box = { x: frame.left, y: frame.top, width: across, height: upwards };
    add(add(add(svg, "defs"), "clipPath", { id: clip }), "rect", box);
    grid(svg, axes, texts, frame, { across, upwards, width, height, size, crowded, letter }, project);
    const area = add(svg, "g", { "clip-path": `url(#${clip})` });
    const points = [];
    for (const trace of traces) drawTrace(area, trace, axes, project, points, size);
    add(svg, "rect", { ...box, class: "frame" });
    if (matrix) colourBar(svg, matrix, width - 52, frame.top, Math.min(upwards, 160), size);
    element._chart = { axes, spans, frame, across, upwards, points, plot };
    legend(element, traces);
    listen(element);
  }

  function equalise(spans, across, upwards) {
    const scales = [across / (spans[0][1] - spans[0][0]), upwards / (spans[1][1] - spans[1][0])];
    const k = scales[0] > scales[1] ? 0 : 1, wanted = [across, upwards][k] / Math.min(...scales);
    const middle = (spans[k][0] + spans[k][1]) / 2;
    spans[k] = [middle - wanted / 2, middle + wanted / 2];
  }

  function grid(svg, axes, texts, frame, sizes, project) {
    const { across, upwards, width, height, size, crowded, letter } = sizes;
    const bottom = frame.top + upwards;
    const fits = (k) => {
      const distance = (k ? upwards : across) / Math.max(1, texts[k].length);
      return axes[k].names ? Math.max(1, Math.ceil((k || crowded ? 11 : 1) / distance)) : 1;
    };
    texts.forEach((ticks, k) => ticks.forEach(([at, text], i) => {
      const place = project(k, at);
      if (k === 0 && (place < frame.left - 1 || place > frame.left + across + 1)) return;
      if (k === 1 && (place < frame.top - 1 || place > bottom + 1)) return;
      const line = k ? { x1: frame.left, x2: frame.left + across, y1: place, y2: place }
        : { x1: place, x2: place, y1: frame.top, y2: bottom };
      if (!axes[k].names) add(svg, "line", { ...line, class: "grid" });
      if (i % fits(k)) return;
      const long = text.length > 18 ? text.slice(0, 17) + "…" : text;
      if (k) {
        add(svg, "text", { x: frame.left - 6, y: place + 0.35 * size, "text-anchor": "end" }, long);
      } else if (crowded) {
        const turn = `translate(${place + 0.35 * size},${bottom + 6}) rotate(-90)`;
        add(svg, "text", { transform: turn, "text-anchor": "end" }, long);
      } else {
        add(svg, "text", { x: place, y: bottom + size + 4, "text-anchor": "middle" }, long);
      }
    }));
    const titles = axes.map((axis) => plain(axis.spec.title ? axis.spec.title.text : ""));
    const room = Math.floor(width / letter) - 2;
    const first = titles[0].length > room ? titles[0].slice(0, room - 1) + "…" : titles[0];
    const middle = Math.min(frame.left + across / 2, width - first.length * letter / 2);
    add(svg, "text", { x: Math.max(middle, first.length * letter / 2), y: height - 5, "text-anchor": "middle", class: "title" }, first);
    const tall = Math.floor((upwards + frame.bottom) / letter);
    const second = titles[1].length > tall ? titles[1].slice(0, tall - 1) + "…" : titles[1];
    const turned = `translate(${size + 1},${frame.top + upwards / 2}) rotate(-90)`;
    add(svg, "text", { transform: turned, "text-anchor": "middle", class: "title" }, second);
  }

  function drawTrace(area, trace, axes, project, points, size) {
    const group = add(area, "g", { class: "trace", opacity: trace.opacity === undefined ? 1 : trace.opacity });
    if (trace.type === "heatmap") {
      drawMatrix(group, trace, axes, project, points, size);
      return;
    }
    const at = (trace.x || []).map((x, i) => [axes[0].to(x), axes[1].to(trace.y[i])]).map(
      ([x, y]) => x === null || y === null ? null : [project(0, x), project(1, y)]);
    const name = plain(trace.name || "");
    if (trace.type === "bar") {
      const flat = trace.orientation === "h", k = flat ? 1 : 0;
      const thick = 0.7 * Math.abs(project(k, 1) - project(k, 0)), zero = project(1 - k, 0);
      at.forEach((place, i) => {
        if (!place) return;
        const ends = [Math.min(zero, place[1 - k]), Math.abs(place[1 - k] - zero)];
        const sides = [place[k] - thick / 2, thick];
        const [x, y] = flat ? [ends, sides] : [sides, ends];
        add(group, "rect", { x: x[0], y: y[0], width: x[1], height: y[1], fill: trace.marker.color });
        points.push({ at: place, text: `${trace.x[i]}, ${trace.y[i]}` });
      });
      return;
    }
    const mode = trace.mode || "lines", line = trace.line || {}, marker = trace.marker || {};
    const shown = at.filter(Boolean);
    if (trace.fill === "toself") {
      if (shown.length) add(group, "path", { d: "M" + shown.join("L") + "z", fill: trace.fillcolor });
      return;
    }
    const ink = line.color || marker.color || "currentColor";
    const lonely = (i) => at[i] && !at[i - 1] && !at[i + 1];
    const dots = mode.includes("markers") ? at.map((place, i) => place && i).filter((i) => i !== null)
      : mode.includes("lines") ? at.map((place, i) => lonely(i) ? i : null).filter((i) => i !== null) : [];
    if (mode.includes("lines")) {
      add(group, "path", {
        d: outline(at, line.shape === "hv"), fill: "none", stroke: ink, "stroke-width": line.width || 2,
        "stroke-dasharray": DASHES[line.dash] || "none", "stroke-linejoin": "round",
      });
    }
    drawDots(group, trace, at, dots, ink);
    if (mode.includes("text")) {
      at.forEach((place, i) => place && add(group, "text", { x: place[0] + 6, y: place[1] - 6 }, plain(trace.text[i])));
    }
    if (trace.hoverinfo === "skip") return;
    at.forEach((place, i) => {
      if (!place) return;
      const text = Array.isArray(trace.text) ? trace.text[i] : trace.text;
      const values = [trace.x[i], trace.y[i]].map((v) => typeof v === "number" ? number(v) : v).join(", ");
      points.push({ at: place, text: text === undefined ? `${name}: ${values}` : `${values} · ${plain(text)}` });
    });
  }

  function outline(at, stairs) {
    let path = "", previous = null;
    for (const place of at) {
      if (place && previous) path += stairs ? `H${place[0]}V${place[1]}` : `L${place}`;
      else if (place) path += `M${place}`;
      previous = place;
    }
    return path;
  }

  function drawDots(group, trace, at, dots, ink) {
    const marker = trace.marker || {}, shape = SYMBOLS[marker.symbol] || SYMBOLS.circle;
    const radius = (marker.size || 6) / 2, opacity = marker.opacity === undefined ? 1 : marker.opacity;
    const open = marker.symbol === "x" || marker.symbol === "star";
    const style = open ? { fill: "none", stroke: ink, "stroke-width": 1.5, opacity } : { fill: ink, opacity };
    if (dots.length) add(group, "path", { ...style, d: dots.map((i) => `M${at[i]}${shape(radius)}`).join("") });
  }

  function limits(trace) {
    const values = trace.z.flat().filter((value) => value !== null);
    const low = trace.zmin === undefined ? values.reduce((a, b) => Math.min(a, b), Infinity) : trace.zmin;
    const high = trace.zmax === undefined ? values.reduce((a, b) => Math.max(a, b), -Infinity) : trace.zmax;
    return [low, high > low ? high : low + 1];
  }

  function drawMatrix(group, trace, axes, project, points, size) {
    const rows = trace.z.length, columns = trace.z[0].length, [low, high] = limits(trace);
    const canvas = document.createElement("canvas");
    canvas.width = columns;
    canvas.height = rows;
    const context = canvas.getContext("2d"), pixels = context.createImageData(columns, rows);
    const [x, y] = ["x", "y"].map((side, k) => cells(trace, side, axes[k]).map((at) => project(k, at)));
    const step = [(x[1] - x[0]) / columns, (y[1] - y[0]) / rows];
    trace.z.forEach((row, i) => row.forEach((value, j) => {
      if (value === null) return;
      const part = (value - low) / (high - low);
      // Row 0 of the picture is the one at the top.
      const line = step[1] > 0 ? i : rows - 1 - i;
      pixels.data.set([...colour(part), 255], 4 * (line * columns + j));
    }));
    context.putImageData(pixels, 0, 0);
    add(group, "image", {
      href: canvas.toDataURL(), x: Math.min(...x), y: Math.min(...y), width: Math.abs(x[1] - x[0]),
      height: Math.abs(y[1] - y[0]), preserveAspectRatio: "none", style: "image-rendering: pixelated",
    });
    if (rows * columns > 10000) return;
    trace.z.forEach((row, i) => row.forEach((value, j) => {
      const at = [x[0] + (j + 0.5) * step[0], y[0] + (i + 0.5) * step[1]];
      const label = trace.text ? String(trace.text[i][j]) : "";
      const names = axes.map((axis, k) => axis.names ? axis.names[[j, i][k]] : number([j, i][k]));
      if (value !== null) points.push({ at, text: `${names[1]} → ${names[0]}: ${label ? label + ", " : ""}${number(value)}` });
      if (!label || 0.6 * size * label.length > Math.abs(step[0]) || size > Math.abs(step[1])) return;
      const light = value !== null && (value - low) / (high - low) > 0.55;
      add(group, "text", { x: at[0], y: at[1] + 0.35 * size, "text-anchor": "middle", style: `fill: ${light ? "#000" : "#fff"}` }, label);
    }));
  }

  function colourBar(svg, trace, x, y, height, size) {
    const [low, high] = limits(trace), parts = 40;
    const title = trace.colorbar && trace.colorbar.title ? plain(trace.colorbar.title.text) : "";
    for (let k = 0; k < parts; k++) {
      add(svg, "rect", {
        x, y: y + height * (1 - (k + 1) / parts), width: 12, height: height / parts + 0.5,
        fill: `rgb(${colour(k / (parts - 1))})`,
      });
    }
    add(svg, "text", { x: x + 16, y: y + 0.8 * size }, number(high));
    add(svg, "text", { x: x + 16, y: y + height }, number(low));
    const turn = `translate(${x + 27},${y + height / 2}) rotate(-90)`;
    add(svg, "text", { transform: turn, "text-anchor": "middle" }, title);
  }

  function legend(element, traces) {
    const next = element.nextElementSibling;
    if (next && next.classList.contains("legend")) next.remove();
    const names = new Map();
    for (const trace of traces) {
      const present = names.get(trace.name); // of a band and a line with one name, show the line
      if (trace.name && trace.type === "scatter" && (!present || present.fill)) names.set(trace.name, trace);
    }
    if (names.size < 2) return;
    const list = document.createElement("ul");
    list.className = "legend";
    for (const [name, trace] of names) {
      const item = document.createElement("li"), line = trace.line || {}, marker = trace.marker || {};
      const svg = add(item, "svg", { width: 28, height: 10, "aria-hidden": "true" });
      if (trace.fill) add(svg, "rect", { width: 28, height: 10, fill: trace.fillcolor });
      else if ((trace.mode || "lines").includes("lines")) {
        add(svg, "path", { d: "M0,5H28", stroke: line.color || "currentColor", "stroke-width": line.width || 2, "stroke-dasharray": DASHES[line.dash] || "none" });
      } else {
        const shape = (SYMBOLS[marker.symbol] || SYMBOLS.circle)(3.5);
        add(svg, "path", { d: "M14,5" + shape, fill: marker.color, stroke: marker.color });
      }
      item.append(plain(name));
      list.append(item);
    }
    element.after(list);
  }

  // Zooming in the coordinates of the axes: `moves` are fractions of the width.
  function move(element, moves) {
    const [low, high] = element._chart.spans[0], width = high - low;
    element._view.x = [low + moves[0] * width, high + moves[1] * width];
    draw(element, element._chart.plot);
  }

  function reset(element) {
    element._view = {};
    draw(element, element._chart.plot);
  }

  function tooltip(element, event) {
    const old = element.querySelector(".hovertext");
    if (old) old.remove();
    const bounds = element.getBoundingClientRect();
    const at = [event.clientX - bounds.left, event.clientY - bounds.top];
    let nearest = null, least = 40;
    for (const point of element._chart.points) {
      const distance = Math.hypot(point.at[0] - at[0], point.at[1] - at[1]);
      if (distance < least) [nearest, least] = [point, distance];
    }
    if (!nearest) return;
    const box = document.createElement("div");
    box.className = "hovertext";
    box.textContent = nearest.text;
    element.append(box);
    const left = Math.min(nearest.at[0] + 10, bounds.width - box.offsetWidth - 2);
    box.style.left = Math.max(0, left) + "px";
    box.style.top = Math.max(0, nearest.at[1] - box.offsetHeight - 8) + "px";
  }

  // Dragging with a mouse zooms; a finger scrolls the page.
  function listen(element) {
    if (element._listens) return;
    element._listens = true;
    let start = null, marked = null;
    const place = (event) => {
      const bounds = element.getBoundingClientRect();
      return [event.clientX - bounds.left, event.clientY - bounds.top];
    };
    element.addEventListener("pointermove", (event) => {
      if (start && marked) {
        const at = place(event), lows = [0, 1].map((k) => Math.min(start[k], at[k]));
        const attributes = { x: lows[0], y: lows[1], width: Math.abs(at[0] - start[0]), height: Math.abs(at[1] - start[1]) };
        for (const [name, value] of Object.entries(attributes)) marked.setAttribute(name, value);
      } else {
        tooltip(element, event);
      }
    });
    element.addEventListener("pointerleave", () => {
      for (const box of element.querySelectorAll(".hovertext")) box.remove();
    });
    element.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button) return;
      start = place(event);
      marked = add(element.querySelector("svg"), "rect", { class: "marked" });
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener("pointerup", (event) => {
      if (!start) return;
      const at = place(event), { axes, spans, frame, across, upwards, plot } = element._chart;
      const value = (k, pixel) => {
        const part = k === 0 ? (pixel - frame.left) / across : (pixel - frame.top) / upwards;
        const turned = k === 0 || axes[1].reversed ? part : 1 - part;
        return spans[k][0] + Math.min(1, Math.max(0, turned)) * (spans[k][1] - spans[k][0]);
      };
      const areas = [0, 1].map((k) => [value(k, start[k]), value(k, at[k])].sort((a, b) => a - b));
      const wide = [0, 1].map((k) => Math.abs(at[k] - start[k]) > 12);
      if (wide[0]) element._view.x = areas[0];
      if (wide[1]) element._view.y = areas[1];
      start = null;
      marked.remove();
      if (wide[0] || wide[1]) draw(element, plot);
    });
    element.addEventListener("dblclick", () => reset(element));
  }

  return { draw, move, reset };
})();
