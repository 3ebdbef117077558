// The explorer of single examples. Texts come from questions and models, so they only ever become text nodes.
const {pairs, examples, anchors, forms, signs} = JSON.parse(document.getElementById("examples-data").textContent);
const form = document.getElementById("explore");
const matching = document.getElementById("matching");
const list = document.getElementById("matches");
const more = document.getElementById("more");
const article = document.getElementById("example");
const PAGE = 50;  // matches that the list grows by
const HALF = 128;  // the smallest byte of a probability of one half or more
let matches = [], chosen;

// Probabilities of all layers: a byte each, clean ones first.
function decode(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return {clean: bytes.subarray(0, bytes.length / 2), cut: bytes.subarray(bytes.length / 2)};
}

for (const pair of pairs) for (const mean of Object.values(pair.means)) mean.curve = decode(mean.curve);
for (const example of examples) {
  example.pair = pairs[example.pair];
  if (example.curve) example.curve = decode(example.curve);
  example.text = [...example.question, "\n", ...example.answer, "\n", example.gold].join("").toLowerCase();
}

// ---- Elements

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function drawn(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A text in stretches, of which every second one is marked.
function marked(stretches) {
  return stretches.map((stretch, index) => (index % 2 ? element("mark", {}, stretch) : stretch));
}

// A sign is not read out: the verdict's name stands beside it.
function sign(verdict, className) {
  const made = element("span", {className}, signs[verdict]);
  made.ariaHidden = "true";
  return made;
}

function badge(verdict) {
  return element("span", {className: `badge ${verdict}`}, sign(verdict, ""), ` ${verdict}`);
}

const decimal = (byte) => (byte / 255).toFixed(2);

// ---- Filters and the list of matches

function flips({curve}, layer) {
  return (curve.clean[layer] >= HALF) !== (curve.cut[layer] >= HALF);
}

function flipsAt(example, where) {
  if (!example.curve) return false;
  if (where !== "any") return Number(where) < example.curve.cut.length && flips(example, Number(where));
  return example.curve.cut.some((_, layer) => flips(example, layer));
}

function wanted() {
  const asked = Object.fromEntries(new FormData(form));
  const text = asked.text.trim().toLowerCase();
  return (example) =>
    (!asked.model || example.pair.model === asked.model) &&
    (!asked.dataset || example.pair.dataset === asked.dataset) &&
    (!asked.form || example.form === asked.form) &&
    (!asked.verdict || example.verdict === asked.verdict) &&
    (!asked.anchor || example.anchor === asked.anchor) &&
    (!asked.flipped || flipsAt(example, asked.flipped)) &&
    (!text || example.text.includes(text));
}

function entry(example) {
  const words = element("span", {className: "asked-words"}, example.question.join(""));
  const hidden = element("span", {className: "unseen"}, `${example.verdict}: `);
  const button = element("button", {type: "button"}, sign(example.verdict, `sign ${example.verdict}`), hidden, words);
  button.onclick = () => { show(example, button); article.scrollIntoView({block: "nearest"}); };
  return element("li", {}, button);
}

function listMore() {
  const before = list.children.length;
  list.append(...matches.slice(before, before + PAGE).map(entry));
  const left = matches.length - list.children.length;
  more.hidden = left === 0;
  more.textContent = `Show ${Math.min(PAGE, left)} more`;
  return list.children[before]?.firstChild;
}

// What the filters ask for: the list begins again, and the first match is shown.
function search() {
  matches = examples.filter(wanted());
  list.replaceChildren();
  list.scrollTop = 0;
  const all = examples.length.toLocaleString("en");
  matching.textContent = `${matches.length.toLocaleString("en")} of ${all} examples match`;
  show(matches[0], listMore());
}

// ---- One example

function show(example, button) {
  list.querySelector("[aria-current]")?.removeAttribute("aria-current");
  button?.setAttribute("aria-current", "true");
  chosen = example;
  if (!example) return article.replaceChildren(element("p", {className: "soft"}, "No example matches these filters."));
  const {pair} = example;
  const about = [pair.model, pair.dataset, `${forms[example.form] ?? example.form} question`, anchors[example.anchor]];
  article.replaceChildren(
    element("p", {className: "soft"}, about.filter(Boolean).join(" · ")),
    element("p", {className: "question"}, ...marked(example.question)),
    element("p", {}, ...marked(example.answer), " ", badge(example.verdict)),
    element("p", {className: "soft"}, `Gold: ${example.gold}`),
    ...(example.curve ? curveOf(example) : [element("p", {}, "This dataset could not be probed: there is no curve.")]),
  );
}

// The layer that is spoken of: the one of the filter, or else the one that tells the groups apart.
function layerOf({pair, curve}) {
  const asked = form.elements.flipped?.value;
  return asked && asked !== "any" && Number(asked) < curve.cut.length ? Number(asked) : pair.layer;
}

function curveOf(example) {
  const layer = layerOf(example), {clean, cut} = example.curve;
  const numbers = `${decimal(clean[layer])} clean → ${decimal(cut[layer])} cut`;
  const verdict = flips(example, layer) ? "the probe’s verdict flips" : "the probe’s verdict stays";
  const lines = linesOf(example);
  const said = element("p", {}, `P(hallucinated) at layer ${layer}: `, element("b", {}, numbers), `; ${verdict}.`);
  const box = element("div", {className: "curve"}, chart(lines, layer, article.clientWidth));
  return [said, box, legend(lines), byLayer(lines)];
}

// The curves of an example and, behind them, the means of its group.
function linesOf({pair, anchor, curve}) {
  const {n, curve: mean} = pair.means[anchor];
  const group = `mean of ${n.toLocaleString("en")} ${anchors[anchor]}`;
  return [
    {kind: "clean", title: "this example, clean", values: curve.clean},
    {kind: "cut", title: "this example, question cut", values: curve.cut},
    {kind: "clean mean", title: `${group}, clean`, values: mean.clean},
    {kind: "cut mean", title: `${group}, cut`, values: mean.cut},
  ];
}

function chart(lines, layer, room) {
  const width = Math.max(room, 200);  // while the page is not laid out, there is none
  const height = 250, left = 46, right = width - 12, top = 14, bottom = height - 42;
  const last = lines[0].values.length - 1;
  const x = (at) => left + ((right - left) * at) / Math.max(1, last);
  const y = (byte) => bottom - ((bottom - top) * byte) / 255;
  const step = Math.max(1, Math.ceil(last / (width / 60)));
  const ticks = Array.from({length: Math.floor(last / step) + 1}, (_, index) => index * step);
  const said = lines.map(({title, values}) => `${title}: ${decimal(values[layer])}`).join("; ");
  return drawn(
    "svg",
    {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `P(hallucinated) over layers 0 to ${last}. At layer ${layer}, ${said}.`,
    },
    ...[0, 0.5, 1].flatMap((p) => [
      drawn("line", {class: p === 0.5 ? "half" : "grid", x1: left, x2: right, y1: y(255 * p), y2: y(255 * p)}),
      drawn("text", {x: left - 8, y: y(255 * p) + 4, "text-anchor": "end"}, String(p)),
    ]),
    ...ticks.map((at) => drawn("text", {x: x(at), y: bottom + 18, "text-anchor": "middle"}, String(at))),
    drawn("text", {x: (left + right) / 2, y: height - 6, "text-anchor": "middle"}, "Layer"),
    drawn("text", {transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle"}, "P(hallucinated)"),
    drawn("line", {class: "here", x1: x(layer), x2: x(layer), y1: top, y2: bottom}),
    ...[...lines].reverse().map(({kind, values}) => {  // the example in front
      const points = Array.from(values, (byte, at) => `${x(at).toFixed(1)},${y(byte).toFixed(1)}`);
      return drawn("path", {class: kind, d: `M${points.join("L")}`});
    }),
    ...lines.slice(0, 2).map(({kind, values}) => drawn("circle", {class: kind, cx: x(layer), cy: y(values[layer]), r: 4})),
  );
}

function legend(lines) {
  const sample = (kind) =>
    drawn("svg", {width: 30, height: 10, "aria-hidden": "true"}, drawn("path", {class: kind, d: "M1,5L29,5"}));
  return element("ul", {className: "legend"}, ...lines.map(({kind, title}) => element("li", {}, sample(kind), title)));
}

// The same numbers as a table, folded away.
function byLayer(lines) {
  const row = (kind, texts) =>
    element("tr", {}, ...texts.map((text) => element(kind, {className: "number"}, String(text))));
  const head = row("th", ["layer", ...lines.map(({title}) => title)]);
  const rows = Array.from(lines[0].values, (_, at) => row("td", [at, ...lines.map(({values}) => decimal(values[at]))]));
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  const box = element("div", {className: "wide", tabIndex: 0, role: "region", ariaLabel: "Numbers by layer"}, table);
  return element("details", {}, element("summary", {className: "soft"}, "Numbers by layer"), box);
}

// ---- The page answers

form.addEventListener("input", search);
form.addEventListener("reset", () => setTimeout(search));  // once the controls are empty
form.addEventListener("submit", (event) => event.preventDefault());
more.addEventListener("click", () => listMore().focus());
form.hidden = document.getElementById("explored").hidden = false;
new ResizeObserver(() => {
  const box = article.querySelector(".curve"), width = article.clientWidth;
  if (box && width && box.firstChild.getAttribute("width") !== String(width)) {
    box.replaceChildren(chart(linesOf(chosen), layerOf(chosen), width));
  }
}).observe(article);
search();
