const box = document.getElementById("chart");
const menus = document.getElementById("menus");
const spec = JSON.parse(document.getElementById("chart-spec").textContent);
const param = (name) => spec.params.find((one) => one.name === name);
const models = param("chosen_model").bind.options.length - 1;
const hideTooltip = () => document.getElementById("vg-tooltip-element")?.classList.remove("visible");
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
  if (!box.clientWidth) return;  // hidden: there is no width to fit
  const focused = document.activeElement?.name;
  if (drawn) keep();
  fit();
  hideTooltip();
  menus.replaceChildren();
  drawn = await vegaEmbed(box, spec, {
    mode: "vega-lite", renderer: "svg", bind: "#menus", downloadFileName: "anchorscope",
    actions: {export: true, source: false, compiled: false, editor: false},
    logLevel: 1,  // errors only: a panel that a menu takes away warns of its empty axis
  });
  for (const menu of menus.querySelectorAll("select")) {
    drawn.view.addSignalListener(menu.name, (name, value) => {
      param(name).value = value;
      hideTooltip();  // its point may be gone
      if (name === "chosen_model") redraw();
    });
    if (menu.name === focused) menu.focus();
  }
  box.querySelector("summary").ariaLabel = "Save the chart as a picture";
  box.dataset.columns = spec.columns;
}

function redraw() { drawing = drawing.catch(() => {}).then(draw); }

new ResizeObserver(() => {
  clearTimeout(waiting);
  if (box.clientWidth !== width) waiting = setTimeout(redraw, 200);
}).observe(box);
redraw();
