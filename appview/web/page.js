// The page at `/`. Texts of others reach the document as text nodes only.
"use strict";

const XRPC = "/xrpc/dev.bastienrobert.memory.";
const LIVE_DELAY_MS = 180;
const PAGE_SIZE = 20;
const HYBRID = "hybrid";

const find = (id) => document.getElementById(id);
const form = find("search");
const results = find("results");
const status = find("status");
const more = find("more");

/** An element with properties, filled with texts and elements. */
function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Where a method answers to these parameters. */
function address(method, parameters) {
  return `${XRPC}${method}?${new URLSearchParams(parameters)}`;
}

/** The decoded answer of a method; an Error with its message if it refuses. */
async function ask(method, parameters, signal) {
  return read(await fetch(address(method, parameters), { signal }));
}

/** The same for a search, by POST, so that what people look for stays out of every log on the way. */
async function search(parameters, signal) {
  const body = { ...parameters };
  for (const name of ["repo", "kind", "scope"]) if (name in body) body[name] = [body[name]];
  const headers = { "Content-Type": "application/json" };
  return read(await fetch(`${XRPC}searchRecords`, { method: "POST", headers, body: JSON.stringify(body), signal }));
}

async function read(response) {
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.message);
  return answer;
}

/** What the form asks for; empty fields are left out. */
function asked() {
  const fields = new FormData(form);
  const parameters = {};
  for (const name of ["q", "repo", "kind", "scope", "explainUri"]) {
    const text = fields.get(name).trim();
    if (text) parameters[name] = text;
  }
  if (fields.get("asOf")) parameters.asOf = `${fields.get("asOf").padEnd(19, ":00")}Z`;
  if (fields.get("includeSuperseded")) parameters.includeSuperseded = true;
  if (!parameters.q) {
    delete parameters.explainUri;
    return parameters;
  }
  if (fields.get("mode") !== HYBRID) parameters.mode = fields.get("mode");
  if (fields.get("explain")) parameters.explain = true;
  return parameters;
}

let running = new AbortController();

/** Search, or list what is newest while no words are given, and show the first page. */
async function run({ live = false } = {}) {
  running.abort();
  running = new AbortController();
  const parameters = { ...asked(), limit: PAGE_SIZE };
  if (parameters.q && live) parameters.prefix = true;
  history.replaceState(null, "", `#${new URLSearchParams(asked())}`);
  await page(parameters, running.signal, true);
}

async function page(parameters, signal, first) {
  const searching = "q" in parameters;
  try {
    const answer = await (searching ? search(parameters, signal) : ask("listRecords", parameters, signal));
    if (first) results.replaceChildren();
    results.append(...answer.records.map(card));
    describe(answer, parameters);
    find("asked").href = address(searching ? "searchRecords" : "listRecords", parameters);
    more.hidden = !answer.cursor;
    more.onclick = () => page({ ...parameters, cursor: answer.cursor }, running.signal, false);
  } catch (error) {
    if (error.name === "AbortError") return;
    results.replaceChildren();
    more.hidden = true;
    status.textContent = error.message;
  }
}

function describe(answer, parameters) {
  const searching = "q" in parameters;
  const parts = [];
  if (!results.childElementCount) parts.push(searching ? "No memory matches." : "No memory yet.");
  else if (!searching) parts.push("The newest memories.");
  if (searching) parts.push(how(answer.mode, parameters.mode ?? HYBRID));
  if (answer.asOf) parts.push(`As of ${moment(answer.asOf)}, with today’s values.`);
  if (answer.explanation) parts.push(explained(answer.explanation, answer.mode));
  if (answer.suppressed) {
    const count = answer.suppressedCapped ? `More than ${answer.suppressed}` : answer.suppressed;
    parts.push(`${count} better ${answer.suppressed === 1 ? "match was" : "matches were"} left out as replaced.`);
  }
  status.textContent = parts.join(" ");
}

/** By what was searched, as a sentence; it may be less than was asked for. */
function how(done, wanted) {
  if (done === "lexical" && wanted === HYBRID) return "By words alone: no model was at hand for what they mean.";
  return { [HYBRID]: "By words and by meaning.", lexical: "By words.", semantic: "By meaning." }[done] ?? "";
}

const REASONS = {
  repo: "it is somebody else’s",
  scope: "it has another scope",
  kind: "it is of another kind",
  asOf: "it was not there at that time",
  q: "it has none of the words, and means nothing like them",
  phrase: "it does not have the phrase",
  exclusion: "it has what was excluded",
  superseded: "a newer memory replaced it",
  commonWords: "it shares only common words",
  minScore: "it scores too low",
  duplicate: "another hit has the same content",
  window: "too many others rank above it",
};

/** Why one memory was recalled or not, as a sentence. */
function explained({ recalled, failedFilter, scores }, mode) {
  const where = scores ? ` (${ranked(scores)})` : "";
  if (recalled) return `The memory in question was recalled${where}.`;
  const byWords = failedFilter === "q" && mode === "lexical" ? "it has none of the words" : undefined;
  const reason = byWords ?? REASONS[failedFilter] ?? `the filter ${failedFilter} left it out`;
  return `The memory in question was not recalled${where}: ${reason}.`;
}

/** The places of a memory in both arms of a search, their own measures, and what the order goes by. */
function ranked({ lexical, semantic, fused }) {
  const place = (arm) => (arm ? `no. ${arm.rank} (${Number(arm.raw).toFixed(3)})` : "none");
  return `by words ${place(lexical)}, by meaning ${place(semantic)}, together ${Number(fused).toFixed(3)}`;
}

function card(record) {
  const { value } = record;
  const item = make("li", { className: record.superseded ? "memory superseded" : "memory", tabIndex: 0 });
  const about = make("p", { className: "about" },
    make("strong", { title: record.repo }, foreign(record.handle ?? record.repo)),
    fact(value.kind), fact(value.scope), fact(moment(value.createdAt)),
    record.score === undefined ? null : make("span", { title: "score, of 1000" }, `score ${record.score}`),
    record.scores ? make("span", {}, ranked(record.scores)) : null,
    record.superseded ? make("span", { className: "note" }, "replaced") : null,
    record.duplicates ? make("span", {}, `and ${record.duplicates.length} of the same content`) : null,
  );
  if (record.superseded || record.supersedes.length || record.version > 1) {
    about.append(toggle("history", item, async () => story(await ask("getHistory", { uri: record.uri, limit: 100 }))));
  }
  about.append(toggle("record", item, async () => make("pre", {}, JSON.stringify(record, null, 2))));
  item.append(marked(value.content, record.highlights ?? []), about);
  return item;
}

function fact(text) {
  return typeof text === "string" && text ? make("span", {}, foreign(text)) : null;
}

/** A text of others in a line of ours, whose order it must not turn. */
function foreign(text) {
  return make("bdi", {}, text);
}

/** The content with its highlights, which count bytes of UTF-8. */
function marked(content, highlights) {
  const bytes = new TextEncoder().encode(content);
  const text = (start, end) => new TextDecoder().decode(bytes.subarray(start, end));
  const element = make("p", { className: "content", dir: "auto" });
  let end = 0;
  for (const slice of highlights) {
    element.append(text(end, slice.byteStart), make("mark", {}, text(slice.byteStart, slice.byteEnd)));
    end = slice.byteEnd;
  }
  element.append(text(end, bytes.length));
  return element;
}

/** A history as a list, earliest first: what was replaced, the memory itself, what replaced it. */
function story({ record, versions, replaced, replacedBy, cursor }) {
  const line = (memory, className) => make("li", { className },
    make("time", {}, moment(memory.value.createdAt)), make("span", { dir: "auto" }, memory.value.content));
  const list = make("ol", { className: "story" });
  list.append(...replaced.reverse().map((memory) => line(memory, "old")));
  if (record) list.append(line(record, replacedBy.length ? "this old" : "this"));
  list.append(...replacedBy.map((memory) => line(memory, memory.superseded ? "old" : "")));
  const states = versions.map((version) => `${version.operation} ${moment(version.observedAt)}`).reverse().join(", ");
  return make("div", {}, list, make("p", { className: "hint" }, `${states}${cursor ? ", and more" : ""}`));
}

/** A button that shows and hides something below a card. */
function toggle(label, item, load) {
  const button = make("button", { type: "button", className: "link" }, label);
  let shown = null;
  button.setAttribute("aria-expanded", "false");
  button.onclick = async () => {
    if (shown) {
      shown.remove();
      shown = null;
    } else {
      shown = make("div");
      item.append(shown);
      try {
        shown.append(await load());
      } catch (error) {
        shown.append(error.message);
      }
    }
    button.setAttribute("aria-expanded", String(shown !== null));
  };
  return button;
}

function moment(text) {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? String(text) : date.toISOString().slice(0, 16).replace("T", " ");
}

async function showCounts() {
  const stats = await ask("getStats", {});
  find("count-records").textContent = stats.records.toLocaleString();
  find("count-superseded").textContent = stats.superseded.toLocaleString();
  find("count-repos").textContent = stats.repos.toLocaleString();
  find("indexed-through").textContent = stats.indexedThrough ? moment(stats.indexedThrough) : "—";
  find("counts").hidden = false;
  for (const name of ["kinds", "scopes"]) {
    const values = stats[name].values.filter(({ value }) => value);
    find(name).replaceChildren(...values.map(({ value }) => make("option", { value })));
  }
}

/** The longest words of a text, as a query that finds it. */
function telling(content, count) {
  const words = content.match(/[\p{L}\p{M}\p{N}]{4,}/gu) ?? [content.slice(0, 20)];
  return [...new Set(words)].sort((a, b) => b.length - a.length).slice(0, count).join(" ");
}

/** Questions that the index has answers to: a few people, a replaced fact, and the time before it was. */
async function showExamples() {
  const { records } = await ask("listRecords", { includeSuperseded: true, limit: 100 });
  const examples = [];
  const people = new Map();
  for (const record of records) {
    if (record.handle && !record.superseded && !people.has(record.handle)) people.set(record.handle, record);
  }
  for (const [handle, record] of [...people].slice(0, 4)) {
    const q = telling(record.value.content, 1);
    examples.push([[foreign(q), " · ", foreign(handle)], { q, repo: handle }]);
  }
  const replaced = records.find((record) => record.superseded);
  if (replaced) {
    const q = telling(replaced.value.content, 3);
    const repo = replaced.handle ?? replaced.repo;
    const newer = records.find((record) => record.uri === replaced.supersededBy[0]);
    const label = telling(replaced.value.content, 2);
    examples.push([["What became of “", foreign(label), "”?"], { q, repo, includeSuperseded: true }]);
    examples.push([["Why is it not found?"], { q, repo, explainUri: replaced.uri }]);
    if (newer) {
      const before = new Date(Date.parse(newer.value.createdAt) - 1000);
      if (before >= new Date(replaced.value.createdAt)) {
        examples.push([[`And as of ${moment(before)}?`], { q, repo, asOf: before.toISOString().slice(0, 19) }]);
      }
    }
  }
  const chips = examples.map(([label, fields]) => {
    const chip = make("button", { type: "button", className: "chip" }, ...label);
    chip.onclick = async () => {
      fill(fields);
      await run();
      status.scrollIntoView({ block: "nearest" });
    };
    return chip;
  });
  find("examples").replaceChildren(...chips);
  find("examples").hidden = chips.length === 0;
}

function fill(fields) {
  form.reset();
  for (const [name, value] of Object.entries(fields)) {
    const field = form.elements.namedItem(name);
    if (!field) continue;
    if (field.type === "checkbox") field.checked = String(value) === "true";
    else field.value = name === "asOf" ? String(value).slice(0, 19) : value;
  }
  find("filters").open = Object.keys(fields).some((name) => name !== "q");
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});

let typing;
form.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => run({ live: true }), LIVE_DELAY_MS);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const inField = event.target instanceof HTMLInputElement;
  if (event.key === "/" && !inField) {
    find("q").focus();
    find("q").select();
  } else if (event.key === "Escape" && event.target === find("q")) {
    fill({});
    run();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && (!inField || event.target === find("q"))) {
    const cards = [...results.children];
    const here = cards.indexOf(document.activeElement?.closest("#results > li"));
    const next = cards[here + (event.key === "ArrowDown" ? 1 : -1)];
    (next ?? (event.key === "ArrowUp" ? find("q") : null))?.focus();
  } else {
    return;
  }
  event.preventDefault();
});

fill(Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
run();
showCounts().catch((error) => { status.textContent = error.message; });
showExamples().catch(() => { find("examples").hidden = true; });
