"""How the report looks, and the few lines that fit its chart to the window."""

STYLE = """
:root {
  color-scheme: light dark;
  --text: #1c1e21; --soft: #5d646d; --page: #ffffff; --card: #f6f7f9; --line: #dfe2e7; --accent: #1f6fb2;
  --mark: #ffe89a; --yes: #16703c; --yes-back: #dff3e6; --no: #a3261f; --no-back: #fbe3e1;
  --open: #6b5300; --open-back: #fbf0cf;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e4e6ea; --soft: #a1a8b3; --page: #15171a; --card: #1e2125; --line: #33383f; --accent: #7ab8ee;
    --mark: #5c4c12; --yes: #8adba8; --yes-back: #17372a; --no: #f3a39c; --no-back: #431f1d;
    --open: #e9cf7f; --open-back: #3a3116;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body {
  font: 16px/1.6 system-ui, sans-serif; color: var(--text); background: var(--page);
  max-width: 72rem; margin: 0 auto; padding: 2rem clamp(1rem, 4vw, 3rem) 5rem; overflow-wrap: break-word;
}
a { color: var(--accent); text-underline-offset: 0.15em; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 1rem; letter-spacing: -0.02em; }
h2 { font-size: 1.35rem; margin: 4rem 0 1rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2rem 0 0.5rem; }
p { max-width: 46rem; }
.note { border-left: 3px solid var(--open); padding-left: 0.8rem; margin: 0.5rem 0; }
.soft, figcaption { color: var(--soft); font-size: 0.9rem; }
nav { margin: 1.5rem 0 0; } nav a { display: inline-block; margin: 0.15rem 1.1rem 0.15rem 0; }
.wide { overflow-x: auto; margin: 0.8rem 0; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.35rem 0.9rem 0.35rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--soft); vertical-align: bottom; } td { white-space: nowrap; }
.number { text-align: right; }
pre { overflow-x: auto; padding: 1rem; background: var(--card); border-radius: 8px; font-size: 0.8rem; }
details { margin: 0.5rem 0; } summary { cursor: pointer; padding: 0.3rem 0; }
details > :not(summary) { margin-left: 0.2rem; }
mark { background: var(--mark); color: inherit; border-radius: 3px; padding: 0 0.15em; }
.badge {
  display: inline-block; font-size: 0.8rem; font-weight: 600; line-height: 1.5; padding: 0.05rem 0.65rem;
  border-radius: 999px; white-space: nowrap;
}
.supported, .right { color: var(--yes); background: var(--yes-back); }
.contradicted, .hallucinated { color: var(--no); background: var(--no-back); }
.undecided { color: var(--open); background: var(--open-back); }
.claim { background: var(--card); border-radius: 10px; padding: 0.8rem 1.2rem; margin: 0.7rem 0; }
.claim h3, .claim p { margin: 0 0 0.3rem; } .claim details { margin: 0; } .claim summary { font-size: 0.9rem; }
.verdict { display: flex; flex-wrap: wrap; gap: 0.1rem 0.9rem; align-items: baseline; padding: 0.2rem 0; }
.verdict .badge { min-width: 7.4rem; text-align: center; }
figure { margin: 1.2rem 0 2rem; }
figure img { display: block; width: 100%; height: auto; background: #fff; border-radius: 8px; padding: 0.5rem; }
#chart { width: 100%; min-height: 24rem; }
#chart.vega-embed { padding: 0; display: block; }
#chart svg { max-width: 100%; height: auto; overflow: visible; }
#menus {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(9.5rem, 100%), 1fr)); gap: 0.7rem;
  margin: 1.2rem 0 1.4rem;
}
#menus .vega-bind { min-width: 0; }
#menus .vega-bind-name { display: block; font-size: 0.8rem; color: var(--soft); }
#menus select {
  font: inherit; font-size: 0.9rem; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 0.4rem 0.5rem; width: 100%; text-overflow: ellipsis;
}
#chart .role-legend-entry text, #chart .role-legend-entry path { cursor: pointer; }
#chart summary { background: var(--card); border-color: var(--line); color: var(--text); }
#chart .vega-actions { background: var(--card); border-color: var(--line); }
#chart .vega-actions a { color: var(--text); }
#vg-tooltip-element.vg-tooltip {
  background: var(--card); color: var(--text); border: 1px solid var(--line); border-radius: 8px;
  font: 0.85rem/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums;
}
#vg-tooltip-element td { border: 0; padding-block: 0; }
#vg-tooltip-element.vg-tooltip td.key { color: var(--soft); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); gap: 0 2.5rem; }
.pair h3 { margin-top: 0.8rem; }
.asked { list-style: none; padding: 0; margin: 0; }
.asked li { border-bottom: 1px solid var(--line); padding: 0.6rem 0; }
.asked p { margin: 0.1rem 0; }
.files { columns: 20rem; font-size: 0.85rem; padding-left: 1.1rem; }
"""

SCRIPT = """
const box = document.getElementById("chart");
const menus = document.getElementById("menus");
const spec = JSON.parse(document.getElementById("chart-spec").textContent);
const param = (name) => spec.params.find((one) => one.name === name);
const models = param("chosen_model").bind.options.length - 1;
let drawn, waiting, width, drawing = Promise.resolve();

function fit() {
  width = box.clientWidth;
  const panels = param("chosen_model").value === null ? models : 1;
  const rows = Math.ceil(panels / Math.max(1, Math.floor(width / 320)));
  const columns = Math.ceil(panels / rows);
  const panel = Math.floor((width - 80 - 20 * (columns - 1)) / columns);
  const entries = 2 * Math.max(1, Math.floor(width / 380));
  spec.columns = columns;
  Object.assign(spec.spec, {width: panel, height: Math.round(Math.min(380, Math.max(240, 0.75 * panel)))});
  Object.assign(spec.config.legend, {columns: entries, labelLimit: Math.floor(width / entries) - 60});
}

function keep() {  // what was chosen until now
  const shown = drawn.view.signal("shown").series;
  if (shown) param("shown").value = shown.map((series) => ({series}));
  drawn.finalize();
}

async function draw() {
  const focused = document.activeElement?.name;
  if (drawn) keep();
  fit();
  menus.replaceChildren();
  drawn = await vegaEmbed(box, spec, {
    mode: "vega-lite", renderer: "svg", bind: "#menus", downloadFileName: "anchorscope",
    actions: {export: true, source: false, compiled: false, editor: false},
    logLevel: 1,  // errors only: a panel that a menu takes away warns of its empty axis
  });
  for (const menu of menus.querySelectorAll("select")) {
    drawn.view.addSignalListener(menu.name, (name, value) => {
      param(name).value = value;
      if (name === "chosen_model") redraw();
    });
    if (menu.name === focused) menu.focus();
  }
  box.dataset.columns = spec.columns;
}

function redraw() { drawing = drawing.catch(() => {}).then(draw); }

new ResizeObserver(() => {
  clearTimeout(waiting);
  if (box.clientWidth !== width) waiting = setTimeout(redraw, 200);
}).observe(box);
redraw();
"""
