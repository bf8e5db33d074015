"""A model as one HTML file: C code as WebAssembly, fed by a CSV file, mouse or microphone."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from html import escape
from pathlib import Path

from undamped._base.errors import OptionError, RunError
from undamped.lab.export.c.files import CFiles, c_files
from undamped.lab.export.c.program import input_count, output_count
from undamped.lab.export.subject import Subject
from undamped.lab.files import write_atomically

COMPILER, LINKER = "clang", "wasm-ld"
_GLUE = """
#include "#.h"

static #_state web_state;
static float web_sample[@_INPUTS], web_answer[@_OUTPUTS];

float *web_samples(void);
float *web_answers(void);
void web_reset(void);
int web_step(float elapsed);

float *web_samples(void) { return web_sample; }
float *web_answers(void) { return web_answer; }
void web_reset(void) { #_reset(&web_state); }
int web_step(float elapsed)
{
    (void)elapsed;
    return #_step(&web_state, web_sample, %web_answer);
}
"""
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>TITLE</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
td { padding: .2rem .5rem; white-space: nowrap }
td:last-child { width: 70% }
i { display: block; height: 1rem; background: #0072b2 }
</style>
<h1>TITLE</h1>
<p>The model runs in this page as WebAssembly; nothing leaves it. A sample has the values
<b id="channels"></b>.</p>
<p><label>A CSV file: <input type="file" id="file" accept=".csv,text/csv"></label>
<button id="mouse">Mouse</button> <button id="microphone">Microphone</button>
<button id="reset">Start again</button></p>
<p id="buttons"></p>
<p id="status" role="status">No sample yet.</p>
<table id="answers"></table>
<script>
const model = MODEL;
const get = (id) => document.getElementById(id);
get("channels").textContent = model.channels.join(", ");
let code, samples, answers, count = 0, source = 0;
const bytes = Uint8Array.from(atob(model.wasm), (c) => c.charCodeAt(0));
const ready = WebAssembly.instantiate(bytes, {}).then(({ instance }) => {
  code = instance.exports;
  code._initialize && code._initialize();
  start();
});
function start() {
  code.web_reset();
  const memory = code.memory.buffer;
  samples = new Float32Array(memory, code.web_samples(), model.channels.length);
  answers = new Float32Array(memory, code.web_answers(), model.outputs);
  count = 0;
  get("status").textContent = "No sample yet.";
}
function push(values, elapsed) {
  samples.set(values);
  const error = code.web_step(elapsed);
  count += error ? 0 : 1;
  return error;
}
function show(note) {
  const largest = Math.max(...answers.map(Math.abs), 1e-12);
  get("answers").replaceChildren(...[...answers].map((value, at) => {
    const row = document.createElement("tr");
    const bar = document.createElement("i");
    bar.style.width = `${100 * Math.abs(value) / (model.labels ? 1 : largest)}%`;
    const texts = [model.labels ? model.labels[at] : `value ${at + 1}`, value.toPrecision(4)];
    for (const text of texts) row.insertCell().textContent = text;
    row.insertCell().append(bar);
    return row;
  }));
  get("status").textContent = `${note} ${count} samples.`;
}
function cells(line) {
  const fields = `,${line}`.matchAll(/,\\s*(?:"((?:[^"]|"")*)"|([^,]*))/g);
  return [...fields].map(([, quoted, plain]) => quoted?.replace(/""/g, '"') ?? plain.trim());
}
function rows(text) {
  const fields = text.split(/\\r?\\n/).filter((line) => line.trim()).map(cells);
  const names = fields[0] || [], header = names.some((field) => isNaN(Number(field)));
  const needed = [...(model.named ? model.channels : []), ...(model.time ? [model.time] : [])];
  const missing = needed.filter((name) => header && !names.includes(name));
  if (missing.length) throw Error(`The file has no column '${missing[0]}'.`);
  const first = model.time ? 1 : 0, named = header && model.named;  // the time comes first
  const order = model.channels.map((name, at) => named ? names.indexOf(name) : at + first);
  const number = (field) => (field === "" || field === undefined ? NaN : Number(field));
  const time = (field) => isNaN(number(field)) ? Date.parse(field) / 1000 : number(field);
  return fields.slice(header ? 1 : 0).map((row) => ({
    values: order.map((at) => number(row[at])),
    time: time(row[header ? names.indexOf(model.time) : 0]),
  }));
}
function read(text) {
  let before = NaN, skipped = 0;
  start();
  try {
    for (const { values, time } of rows(text)) {
      const elapsed = model.time && count ? time - before : 1;
      if (push(values, elapsed)) skipped++;
      else before = time;
    }
  } catch (error) {
    get("status").textContent = error.message;
    return;
  }
  show(skipped ? `${skipped} samples were refused.` : "The file was read.");
}
get("file").onchange = async (event) => { source++; read(await event.target.files[0].text()); };
get("reset").onclick = () => { source++; start(); show("Started again."); };
for (const [label, series] of Object.entries(model.buttons)) {
  const button = document.createElement("button");
  button.textContent = label;
  button.onclick = () => {
    source++;
    for (const values of series) push(values, 1);
    show(`${label}:`);
  };
  get("buttons").append(button, " ");
}
get("mouse").onclick = () => {
  const turn = ++source, values = model.channels.map(() => 0);
  start();
  document.onmousemove = (event) => {
    if (turn !== source) return;
    values[0] = 2 * event.clientX / innerWidth - 1;
    if (values.length > 1) values[1] = 1 - 2 * event.clientY / innerHeight;
    show(push(values, 1) ? "A sample was refused." : "Mouse:");
  };
};
get("microphone").onclick = async () => {
  const turn = ++source, context = new AudioContext();
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(analyser);
  const buffer = new Float32Array(analyser.fftSize), values = model.channels.map(() => 0);
  start();
  const tick = () => {
    if (turn !== source) { stream.getTracks().forEach((track) => track.stop()); return; }
    analyser.getFloatTimeDomainData(buffer);
    for (const value of buffer) { values[0] = value; push(values, 1); }
    show("Microphone:");
    requestAnimationFrame(tick);
  };
  tick();
};
</script>
</html>
"""


def export_web(
    subject: Subject,
    path: Path,
    name: str,
    buttons: Mapping[str, list[list[float]]] | None = None,
    time: str = "time",
) -> int:
    """Write a page with a model as WebAssembly; return its size in bytes.

    Args:
        subject: The model with its preparation.
        path: The file.
        name: The name of the model.
        buttons: Samples that are pushed when a button with this label is pressed.
        time: The column of a CSV file with the times, for models that use them.
    """
    for tool in (COMPILER, LINKER):
        if not shutil.which(tool):
            raise OptionError(
                f"A page needs {tool}. Install clang and lld, for example with apt-get."
            )
    files = c_files(subject, name, libm=False)
    prepared = subject.preparation
    channels = [f"channel {at}" for at in range(input_count(subject))]
    labels = None
    if subject.classes is not None:
        labels = list(subject.classes) or [str(at) for at in range(output_count(subject))]
    model = {
        "wasm": base64.b64encode(wasm(files)).decode(),
        "channels": channels if prepared is None else prepared.raw_channels,
        "named": prepared is not None,
        "time": time if prepared is not None and prepared.timestamps else "",
        "labels": labels,
        "outputs": output_count(subject),
        "buttons": dict(buttons or {}),
    }
    # Escaped, so that no name can end the script.
    text = json.dumps(model).replace("<", "\\u003c")
    parts = {"TITLE": escape(name), "MODEL": text}
    # In one pass, since names of runs and channels may contain these words.
    page = re.sub("TITLE|MODEL", lambda match: parts[match[0]], _PAGE)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: _write(file, page))
    return len(page.encode())


def _write(file: Path, page: str) -> None:
    file.write_text(page, encoding="utf-8")


def wasm(files: CFiles) -> bytes:
    """Return a model as a WebAssembly module."""
    name = files.program.name
    elapsed = "elapsed, " if "float elapsed" in files.header else ""
    glue = _GLUE.replace("#_", f"{name}_").replace('"#.h"', f'"{name}.h"')
    with tempfile.TemporaryDirectory() as folder:
        source = files.write(Path(folder))[1]
        web, module = Path(folder) / "web.c", Path(folder) / "model.wasm"
        web.write_text(glue.replace("@", name.upper()).replace("%", elapsed), encoding="ascii")
        exports = [f"-Wl,--export=web_{part}" for part in ("samples", "answers", "reset", "step")]
        flags = ["--target=wasm32", "-O3", "-std=c99", "-nostdlib", "-fno-builtin"]
        command = [COMPILER, *flags, "-Wl,--no-entry", *exports, "-o", str(module)]
        done = subprocess.run(
            [*command, str(web), str(source)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RunError(f"{COMPILER} refused the C code: '{done.stderr.strip()[:200]}'.")
        return module.read_bytes()
