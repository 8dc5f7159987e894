/* cache: the target's cache entry by entry: what each layer and head keeps, how long an entry lived and why it went,
 * where a piece of the text was lost, what two runs keep alike, and what a step looked at. The server counts; this
 * draws. */
import { button, grouped, h, icon, plural, s, size, spoken, toggle } from "./scope.js";
import { ask, example, heard, open, panes, stepped, told as sentence, without } from "./runs.js";
import { current, fragment } from "./address.js";
import { grid, paints, unpacked } from "./cache/grids.js";

const WAIT = 90; // ms in which questions are gathered into one
const LINES = 64; // of the table beside the map
const CELL = 28; // px of a position in the picture of one head
const PLAIN = 0.62; // strength of what is held where attention is not recorded

export function page(element) {
  let at = { row: 0, position: null }, colours = null;
  let map = null, drawnMap = null, strip = null, lived = null,
    sought = { text: "", which: 0, found: null };
  let names = new Map(), other = "", both = null, seen = null, asked = { layer: null, head: 0 },
    tabled = 0, series = null, heavyRow = "";

  // ---- parts

  const quiet = () => h("p", { class: "quiet" }), told = (role) => h("p", { class: "told", role });
  const table = (caption, heads, rows, cls = "") =>
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
      h("table", { class: cls }, h("caption", { class: "unseen" }, caption),
        h("thead", null, h("tr", null, heads.map((x) => h("th", { scope: "col" }, x)))),
        h("tbody", null, rows.map(([first, ...cells]) =>
          h("tr", null, h("th", { scope: "row" }, first), cells.map((x) =>
            h("td", null, x)
          ))
        ))));
  const token = (text) => h("span", { class: "tok" }, spoken(text) || "–");
  const canvas = (role, what) => h("canvas", { tabindex: 0, role, "aria-roledescription": what });

  const title = h("h1"), lead = h("span", { class: "lead" }), legend = h("span", { class: "legend" });
  const picture = canvas("application", "map of the cache"), tip = h("p", { class: "tip", role: "status" }),
    rule = quiet(), twin = h("div");
  const asTable = toggle("Show as table", (on) => ((twin.hidden = !on), (mapBox.hidden = on), on && fillTwin()));
  const mapBox = h("div", { class: "picture" }, picture), why = told("alert");
  const headRow = h("select", { "aria-label": "layer and head" }), headTold = h("span", { class: "quiet" }),
    cells = h("div", { class: "cells", role: "listbox", "aria-orientation": "horizontal" }),
    headTwin = h("div", { hidden: "" });
  const headNote = quiet(),
    headTable = toggle("Show as table", (on) => ((headTwin.hidden = !on), (cells.hidden = on), drawStrip()));
  const back = button("earlier", () => turn(-1)), on = button("later", () => turn(1));
  const lifeTitle = h("h2"), lifeSaid = h("p"), lifePicture = canvas("img", "the life of an entry"), lifeNote = quiet(),
    lifeTwin = h("div", { hidden: "" });
  const lifeTable = toggle("Show as table", (on) => ((lifeTwin.hidden = !on), (lifeBox.hidden = on), drawLife()));
  const lifeBox = h("div", { class: "picture" }, lifePicture),
    lifeHint = h("p", { class: "quiet" },
      "Choose a position: click one in the map or above, or walk there with the arrow keys.");
  const charts = h("div", { class: "charts" }), bytesTold = h("span", { class: "lead" }),
    seriesTwin = h("div", { hidden: "" });
  const seriesTable = toggle("Show as table", (on) => ((seriesTwin.hidden = !on), (charts.hidden = on)));
  const chooseOther = h("select", { "aria-label": "run to compare with" }), bothSaid = told("status"),
    bothOut = h("div");
  const layerOf = h("select", { "aria-label": "layer" }), headOf = h("select", { "aria-label": "head" }),
    seenSaid = h("p"), seenPicture = canvas("img", "rows of attention"), seenNote = quiet(),
    seenTwin = h("div", { hidden: "" });
  const seenBox = h("div", { class: "picture" }, seenPicture),
    seenTable = toggle("Show as table", (on) => ((seenTwin.hidden = !on), (seenBox.hidden = on), drawSeen()));
  const layersBox = h("input", { type: "text", value: "0", "aria-label": "layers, with commas", size: 8,
      spellcheck: "false", autocomplete: "off" }), recordWhy = told("alert"), recordSaid = h("p");
  const again = h("form", { class: "row" }, h("label", null, "layers ", layersBox),
    h("button", { type: "submit", class: "ds-button" }, "Record again with attention"));
  const lack = h("div", { hidden: "" }, recordSaid, again, recordWhy),
    seenRow = h("span", { class: "row" }, h("label", null, "layer ", layerOf), h("label", null, "head ", headOf),
      seenTable);
  const needle = h("input", { type: "search", placeholder: "a piece of the prompt", "aria-label": "text to find",
    spellcheck: "false", autocomplete: "off", maxlength: 2000 });
  const search = h("form", { class: "row" }, needle, h("button", { type: "submit", class: "ds-button" }, "Find")),
    foundSaid = told("status"),
    foundWays = h("span", { class: "row" }),
    foundOut = h("div");
  const heavyOf = h("select", { "aria-label": "heavy hitters of" }), heavyOut = h("div"), heavyNote = quiet();
  const slider = h("input", { type: "range", min: 0, value: 0, step: 1, "aria-label": "step" }),
    where = h("b", { class: "where" });
  const step = (word, name, act) => button(icon(name), act, { class: "bare", "aria-label": word, title: word });
  const section = (name, head, ...parts) => h("section", { class: name }, h("header", null, head), ...parts);
  const lost = button("next eviction", () => nextLost());
  const opened = h("div", { class: "open" },
    h("div", { class: "left" },
      section("map", [title, lead, legend], why, mapBox, h("div", { class: "tools" }, tip, asTable), twin, rule),
      section("one", [h("h2", null, "One head"), headRow, headTold,
        h("span", { class: "row end" }, back, on, headTable)], cells, headTwin, headNote),
      section("life", [lifeTitle, h("span", { class: "row end" }, lifeTable)], lifeHint, lifeSaid, lifeBox, lifeTwin,
        lifeNote), section("both", [h("h2", null, "Kept by two runs"), chooseOther], bothSaid, bothOut),
      section("seen", [h("h2", null, "Attention of this step"), seenRow], lack, seenSaid, seenBox, seenTwin, seenNote),
      section("bytes", [h("h2", null, "Budget and bytes"), bytesTold, h("span", { class: "row end" }, seriesTable)],
        charts, seriesTwin)),
    h("aside", { "aria-label": "find, and heavy hitters" }, h("h2", null, "Find tokens"), search, foundSaid, foundWays,
      foundOut, h("h2", null, "Heavy hitters"), heavyOf, heavyOut, heavyNote),
    h("div", { class: "steps" }, step("previous step", "prev", () => seek(view().at - 1)),
      step("next step", "next", () => seek(view().at + 1)), where, slider, lost));
  const nothing = h("p", { class: "nothing", role: "status" });
  element.replaceChildren(h("h1", { class: "unseen" }, "Cache"), nothing, opened);
  twin.hidden = true;

  // ---- the run, the step, the address

  const view = () => panes[0]?.view, store = () => view()?.store, now = () => view()?.at ?? -1;
  const base = () => `/ds/run/${panes[0].id}/cache`;
  const looked = () => current() === "cache" && !!panes[0]?.id && now() >= 0 && (store()?.count ?? 0) > now();
  function seek(i) {
    const count = store()?.count;
    if (!count) return;
    view().seek(Math.max(0, Math.min(count - 1, i)));
    address(now());
  }
  slider.addEventListener("input", () => seek(Number(slider.value)));
  const loses = () => {
    const all = store().steps;
    for (let i = now() + 1; i < all.length; i++) if (all[i]?.kv.some((x) => x.lane === "target" && x.evicted)) return i;
    return -1;
  };
  const nextLost = () => loses() >= 0 && seek(loses());
  /** Name the step in the address, or no step; it stands there from when it was moved here until another page
   *  is shown. */
  function address(i) {
    const parts = location.hash.slice(1).split("&").filter((part) => part.includes("=")),
      others = parts.filter((part) => !part.startsWith("step="));
    if (i !== null || others.length < parts.length)
      history.replaceState(null, "", fragment([...others, ...(i === null ? [] : [`step=${i}`])]));
  }

  // ---- what is asked of the server

  /** A question to the server: asked when it differs from the last one; of several in a short time the last
   *  one counts. */
  function question(path, take) {
    let last = null, timer = 0;
    const fire = async () => {
      const mine = path();
      timer = 0;
      if (mine === last) return;
      last = mine;
      if (mine === null) return take(null);
      try {
        const got = await ask(mine);
        if (mine === last) take(got);
      } catch (error) {
        if (mine === last) take(null, sentence(error));
      }
      if (path() !== last) tick();
    };
    const tick = () => {
      if (path() !== last && !timer) timer = setTimeout(fire, WAIT);
    };
    return { tick, forget: () => (last = null) };
  }
  const query = (path, words) => `${base()}${path}?${new URLSearchParams(words)}`;
  const wide = () => Math.floor(mapBox.clientWidth || mapBox.parentElement.clientWidth);
  const many = () => Math.max(8, Math.min(200, Math.floor(wide() / CELL)));
  const known = () => looked() && map && !map.untold && map.run === panes[0].id;
  const questions = [
    question(
      () => (looked() && wide()
        ? query("", { step: now(), columns: Math.max(40, Math.min(450, Math.floor((wide() - 34) / 2))) }) : null),
      (got, error) => {
        map = got
          && { ...got, run: panes[0].id, kept: unpacked(got.kept), now: unpacked(got.now),
            mass: got.mass && unpacked(got.mass) };
        refuse(why, error);
        draw();
      }
    ),
    question(() => (known() ? query("/head", { step: now(), row: at.row, from: from(), many: many() }) : null),
      (got) => ((strip = got), drawStrip())),
    question(
      () => (known() && at.position !== null && at.position < map.length
        ? query("/life", { step: now(), position: at.position }) : null),
      (got) => ((lived = got), drawLife())
    ),
    question(() => (known() ? query("/heavy", { step: now(), row: heavyRow }) : null), (got) => drawHeavy(got)),
    question(
      () => (known() && sought.text ? query("/find", { step: now(), text: sought.text, which: sought.which }) : null),
      (got, error) => ((sought.found = got), drawFound(error), drawMap(), drawStrip())
    ),
    question(() => (known() && other ? query("/compare", { step: now(), with: other }) : null),
      (got, error) => ((both = got), drawBoth(error))),
    question(
      () => (looked()
        ? query("/attention", { step: now(), ...(asked.layer === null ? {} : { layer: asked.layer }),
          head: asked.head }) : null),
      (got, error) => ((seen = got), drawSeen(error))
    ),
    question(
      () => (looked() ? `${base()}/series?count=${store().end ? store().count : Math.ceil(store().count / 32)}` : null),
      (got) => ((series = got), drawSeries())
    ),
    question(() => (looked() && store().end ? `${base()}/others` : null), (got) => offer(got?.runs || [])),
  ];
  const load = () => questions.forEach((one) => one.tick());
  function refuse(host, sentence) {
    host.className = sentence ? "told ds-refusal" : "told";
    host.textContent = sentence || "";
  }

  // ---- the map

  const rowName = (row) => `layer ${Math.floor(row / map.heads)}, head ${row % map.heads}`;
  const columnOf = (position) => Math.floor(position / map.bin);
  const sits = (column) =>
    sought.found?.places?.length && !!marked && marked[1] >= column * map.bin && marked[0] < (column + 1) * map.bin;
  let marked = null; // positions of the text that was found
  const share = (part) => (part >= 0.0995 ? `${(100 * part).toFixed(0)} %`
    : part >= 0.00095 ? `${(100 * part).toFixed(1)} %` : part > 0 ? "< 0.1 %" : "0 %");

  function draw() {
    if (current() !== "cache") return;
    const some = looked();
    nothing.textContent = some ? "" : without();
    opened.hidden = !some;
    if (!some) return;
    const count = store().count;
    where.textContent = `step ${now()} of ${count - 1}`;
    Object.assign(slider, { max: Math.max(0, count - 1), value: now() });
    slider.setAttribute("aria-valuetext", where.textContent);
    title.textContent = `Step ${now()}`;
    const fits = map && map.run === panes[0].id;
    for (const name of ["one", "life"]) opened.querySelector("." + name).hidden = !fits || map.untold;
    mapBox.hidden = !fits || map.untold || !twin.hidden;
    lead.replaceChildren();
    if (!fits) return;
    lead.append(h("b", null, `${grouped(map.held)} of ${grouped(map.length)}`), ` positions kept per head, `,
      h("b", null, size(map.bytes)), map.bytes < map.full ? ` of ${size(map.full)}` : " held",
      map.evicted ? h("span", null, ", ", h("b", null, grouped(map.evicted)), " evicted now") : "");
    legend.replaceChildren(h("i", { class: "held" }), map.mass ? "stronger: more attention" : "kept",
      h("i", { class: "gone" }), "evicted", h("i", { class: "now" }), "evicted in this step");
    lost.setAttribute("aria-disabled", String(loses() < 0));
    asTable.hidden = map.untold;
    if (map.untold) {
      rule.textContent =
        `Which entries were evicted is not recorded in this run, which has level “${map.level}”: record it with `
        + "level “decisions”.";
      return void (tip.textContent = "");
    }
    fillRows();
    drawMap();
    if (!twin.hidden) fillTwin();
    load();
  }
  function drawMap() {
    if (!map || map.untold || mapBox.hidden || !wide()) return;
    colours ??= paints(element);
    const rows = map.layers * map.heads, { columns } = map;
    marked = sought.found?.places?.length ? sought.found.places[sought.found.which] : null;
    const score = new Float64Array(columns);
    for (let row = 0; row < rows; row++)
      for (let c = 0; c < columns; c++)
        score[c] += map.mass ? Math.max(0, map.mass[row * columns + c] - 1)
          : map.kept[row * columns + c];
    const bound = [...score].sort((a, b) => b - a)[Math.min(columns - 1, 40)] ?? 0,
      words = [...Array(columns).keys()].filter((c) =>
        score[c] >= bound && score[c] > 0 && /[\p{L}\p{N}]{2}/u.test(String(map.texts[c]))
      );
    drawnMap = grid(picture, colours, {
      wide: wide(),
      rows,
      columns,
      group: map.heads,
      most: 22,
      tall: rows > 128 ? 3 : rows > 64 ? 4 : rows > 32 ? 7 : 12,
      cell: (row, c) => {
        const k = row * columns + c;
        return [map.kept[k] / 255, map.mass ? Math.max(0, map.mass[k] - 1) / 254 : PLAIN, map.now[k]];
      },
      label: (row) => (row % map.heads ? "" : `L${row / map.heads}`),
      over: words.map((c) => [c, spoken(map.texts[c]).slice(0, 12).replace(/^␣/, "")]),
      marked: marked ? sits : null,
      cursor: at.position === null ? null : { row: at.row, column: columnOf(at.position) },
    });
    picture.setAttribute("aria-label",
      `cache after step ${map.step}: ${plural(rows, "row")} of layers and heads, ${plural(map.length, "position")}, `
        + `${plural(map.held, "entry").replace("entrys", "entries")} kept per head; the arrow keys move`);
    const kinds = [map.sinks ? `the first ${map.sinks} (S) never leave` : "",
      map.near !== null && map.near !== undefined ? `the newest ${map.near} (W) stay` : "",
      map.heavy ? `of those between each head keeps the ${map.heavy} with most attention (H)` : ""].filter(Boolean);
    rule.textContent = [
      map.bin > 1
        ? `One column is ${map.bin} positions: filled as high as the share of them that is kept, as strong as the `
          + "strongest."
        : "",
      kinds.length ? `By the policy's knobs ${kinds.join(", ")}.` : "",
      marked ? "Triangles below: the text that was found." : "",
      map.mass ? "" : "How much attention an entry drew is not recorded in this step.",
    ].filter(Boolean).join(" ");
    say();
  }
  /** What stands under the cursor, or under the pointer. */
  function say(row = at.row, column = at.position === null ? null : columnOf(at.position)) {
    if (!map || column === null || column >= map.columns)
      return void (tip.textContent = "The arrow keys walk in the map; Enter goes to the life of the entry.");
    const k = row * map.columns + column, first = column * map.bin, last = Math.min(map.length, first + map.bin) - 1,
      part = map.kept[k] / 255;
    const what = map.bin === 1 ? (part ? "kept" : "evicted")
      : part === 1 ? "all kept"
      : part ? `${Math.round(part * (last - first + 1))} of ${last - first + 1} kept` : "all evicted";
    const mass = map.mass && part
      ? `, attention drawn: ${share((Math.max(0, map.mass[k] - 1) / 254) ** 2)} of its layer's largest` : "";
    const position = at.position !== null && columnOf(at.position) === column && row === at.row ? at.position : first;
    const place = map.bin === 1 ? `position ${first} ${spoken(map.texts[column])}`
      : `positions ${first} to ${last}${position !== first ? `, at ${position}` : ""}`;
    tip.textContent = `${rowName(row)}, ${place}: ${what}${map.now[k] ? ", evicted in this step" : ""}${mass}`;
  }
  function go(row, position) {
    if (!map) return;
    at = { row: Math.max(0, Math.min(map.layers * map.heads - 1, row)),
      position: Math.max(0, Math.min(map.length - 1, position)) };
    shift();
    headRow.value = String(at.row);
    drawMap();
    drawStrip();
    load();
  }
  picture.addEventListener("click", (event) => {
    const hit = drawnMap?.at(event);
    if (hit) go(hit.row, hit.column * map.bin);
  });
  picture.addEventListener("pointermove", (event) => {
    const hit = drawnMap?.at(event);
    if (hit?.inside) say(hit.row, hit.column);
  });
  picture.addEventListener("pointerleave", () => say());
  picture.addEventListener("keydown", (event) => {
    if (!map || event.ctrlKey || event.metaKey || event.altKey) return;
    const p = at.position ?? 0, by = map.bin, key = event.key;
    if (at.position === null && /^(Arrow|Page|Home|End)/.test(key)) go(at.row, key === "End" ? map.length - 1 : 0);
    else if (key === "ArrowLeft") go(at.row, columnOf(p) * by - by);
    else if (key === "ArrowRight") go(at.row, columnOf(p) * by + by);
    else if (key === "ArrowUp") go(at.row - 1, p);
    else if (key === "ArrowDown") go(at.row + 1, p);
    else if (key === "PageUp") go(at.row, p - 10 * by);
    else if (key === "PageDown") go(at.row, p + 10 * by);
    else if (key === "Home") go(at.row, 0);
    else if (key === "End") go(at.row, map.length - 1);
    else if (key === "Enter" && at.position !== null)
      lifePicture.scrollIntoView({ block: "nearest" }), (lifeBox.hidden ? lifeTwin.firstChild : lifePicture)?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  async function fillTwin() {
    const mine = `${panes[0].id} ${now()} ${tabled}`;
    tabled = Math.min(tabled, Math.max(0, Math.floor((map.length - 1) / LINES) * LINES));
    try {
      const got = await ask(query("/lives", { step: now(), from: tabled, many: LINES }));
      if (mine !== `${panes[0].id} ${now()} ${tabled}` || twin.hidden) return;
      const all = map.layers * map.heads, when = (x) => (x === null ? "–" : x < 0 ? "with the prompt" : `step ${x}`);
      const flip = (word, by, off) =>
        button(word, () => ((tabled += by), fillTwin()), { "aria-disabled": String(off) });
      twin.replaceChildren(
        table(`Lives of the positions ${tabled} to ${tabled + got.rows.length - 1} by step ${now()}`, ["position",
          "token", "came", "kept by", "left first", "left last", "why"], got.rows.map((x) =>
            [String(x.position), token(x.text), when(x.came), `${x.kept} of ${all}`, when(x.first), when(x.last),
            x.why ? `${x.why}, ${brief(x.why)}` : "–"]
          )),
        h("p", { class: "row" }, flip("earlier positions", -LINES, tabled === 0),
          flip("later positions", LINES, tabled + LINES >= map.length),
          h("span", { class: "quiet" }, `${tabled} to ${tabled + got.rows.length - 1} of ${grouped(map.length)}`))
      );
    } catch (error) {
      refuse(why, String(error.message));
    }
  }
  const brief = (letter) => (map?.words[letter] || "").split(":")[0];

  // ---- one head

  let begin = 0;
  const from = () => Math.max(0, Math.min(begin, Math.max(0, (map?.length ?? 0) - many())));
  /** Keep the cursor inside the stretch that is shown. */
  function shift() {
    const wide = many();
    if (at.position !== null && (at.position < from() || at.position >= from() + wide))
      begin = Math.max(0, at.position - Math.floor(wide / 3));
  }
  function turn(by) {
    begin = Math.max(0, Math.min(Math.max(0, map.length - many()), from() + by * many()));
    load();
  }
  function fillRows() {
    const all = map.layers * map.heads;
    if (headRow.childElementCount === all && heavyOf.childElementCount === all + 1) return;
    const options = () => [...Array(all).keys()].map((row) => h("option", { value: row }, rowName(row)));
    headRow.replaceChildren(...options());
    heavyOf.replaceChildren(h("option", { value: "" }, "all layers and heads"), ...options());
    at.row = Math.min(at.row, all - 1);
    heavyRow = "";
  }
  headRow.addEventListener("change", () => ((at.row = Number(headRow.value)), drawMap(), load()));
  heavyOf.addEventListener("change", () => ((heavyRow = heavyOf.value), load()));
  function drawStrip() {
    if (!strip || !map) return void cells.replaceChildren();
    const largest = Math.max(1e-9, ...strip.entries.map((x) => x[4] ?? 0)),
      measured = strip.entries.some((x) => x[4] !== null);
    const focused = cells.contains(document.activeElement);
    headTold.textContent = `${grouped(strip.held)} of ${grouped(strip.length)} kept; positions ${strip.from} to `
      + `${strip.from + strip.entries.length - 1}`;
    back.setAttribute("aria-disabled", String(strip.from === 0));
    on.setAttribute("aria-disabled", String(strip.from + strip.entries.length >= strip.length));
    const inside = at.position !== null && at.position >= strip.from && at.position < strip.from + strip.entries.length,
      tabbed = inside ? at.position : strip.from;
    cells.setAttribute("aria-label",
      `positions ${strip.from} to ${strip.from + strip.entries.length - 1} of ${rowName(strip.row)}`);
    cells.replaceChildren(...strip.entries.map(([p, text, letter, left, part]) => {
      const hit = marked && p >= marked[0] && p <= marked[1];
      const cell = h("button", { type: "button", role: "option", "aria-selected": String(p === at.position),
        tabindex: p === tabbed ? 0 : -1,
        class: ["cell", left === null ? "held" : "gone", left === now() ? "now" : "", hit ? "hit" : ""].join(" ")
          .trim(), "data-p": p, "aria-label": `position ${p}, ${spoken(text)}: `
          + map.words[letter] + (left === null ? "" : `, in ${left < 0 ? "the prompt's reading" : `step ${left}`}`)
          + (part ? `; ${share(part)} of this head's attention` : "") + (hit ? "; found" : "") },
        h("span", { class: "bar" }, h("i", {
          style: `height: ${part === null || left !== null ? 0 : Math.max(1, (100 * part) / largest).toFixed(1)}%`,
        })), h("b", null, letter), token(text), h("small", null, String(p)));
      cell.addEventListener("click", () => go(strip.row, p));
      return cell;
    }));
    if (focused) cells.querySelector("[tabindex='0']")?.focus({ preventScroll: true });
    const letters = [...new Set(strip.entries.map((x) => x[2]))];
    headNote.textContent =
      [...letters.map((x) => `${x} ${map.words[x]}`),
        measured ? `bars: part of the attention that this head's entries have drawn, the highest ${share(largest)}`
          : "bars need the attention, which is not recorded in this step"].join("; ") + ".";
    if (!headTwin.hidden)
      headTwin.replaceChildren(
        table(`Entries of ${rowName(strip.row)} after step ${strip.step}`, ["position", "token", "state", "left",
          "attention"], strip.entries.map(([p, text, letter, left, part]) =>
            [String(p), token(text), `${letter}, ${map.words[letter]}`,
            left === null ? "–" : left < 0 ? "prompt" : `step ${left}`,
            part === null || left !== null ? "–" : share(part)]
          ))
      );
  }
  cells.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !strip) return;
    const p = Number(event.target.dataset?.p),
      to =
        { ArrowLeft: p - 1, ArrowRight: p + 1, Home: strip.from,
          End: strip.from + strip.entries.length - 1 }[event.key];
    const row = { ArrowUp: at.row - 1, ArrowDown: at.row + 1 }[event.key];
    if (Number.isNaN(p) || (to === undefined && row === undefined)) return;
    event.preventDefault();
    event.stopPropagation();
    go(row ?? at.row, to ?? p);
    cells.querySelector(`[data-p="${at.position}"]`)?.focus({ preventScroll: true });
  });

  // ---- the life of one entry

  function drawLife() {
    const some = !!lived && !!map && at.position !== null;
    lifeHint.hidden = some;
    for (const part of [lifeSaid, lifeNote, lifeTable]) part.hidden = !some;
    lifeBox.hidden = !some || !lifeTwin.hidden;
    lifeTitle.replaceChildren("The life of an entry");
    if (!some) return;
    const all = lived.rows.length, gone = lived.rows.filter(([left]) => left !== null),
      first = Math.min(...gone.map(([left]) => left)), last = Math.max(...gone.map(([left]) => left));
    const when = (x) => (x < 0 ? "while the prompt was read" : `in step ${x}`),
      letters = [...new Set(gone.map(([, letter]) => letter))];
    lifeTitle.replaceChildren(`Position ${lived.position} `, token(lived.text));
    lifeSaid.textContent = `It came ${lived.came < 0 ? "with the prompt" : when(lived.came)}. `
      + (!gone.length ? `All ${all} heads keep it after step ${lived.step}.`
        : gone.length === all
        ? `All ${all} heads have lost it, `
          + `${first === last ? when(first) : `the first ${when(first)}, the last ${when(last)}`}: `
          + `${letters.map((x) => map.words[x]).join("; ")}.`
        : `${all - gone.length} of ${all} heads keep it; the first lost it `
          + `${when(first)}${last === first ? "" : `, the last ${when(last)}`}: `
          + `${letters.map((x) => map.words[x]).join("; ")}.`);
    const { steps } = lived, masses = lived.mass?.map(unpacked), every = steps.length > 1 ? steps[1] - steps[0] : 1;
    lifeNote.textContent = [
      `One row per layer and head, one column per ${every > 1 ? `${every} steps` : "step"} from `
      + `${lived.came < 0 ? "the first" : "its own"} to step ${lived.step}.`,
      masses ? "Stronger: more attention drawn by then, against the largest of its layer."
        : "How much attention it drew is not recorded.",
    ].join(" ");
    if (!lifeBox.hidden && wide()) {
      colours ??= paints(element);
      grid(lifePicture, colours, {
        wide: wide(),
        rows: all,
        columns: steps.length,
        group: map.heads,
        most: 22,
        tall: all > 64 ? 4 : all > 32 ? 6 : 10,
        cell: (row, c) => {
          const left = lived.rows[row][0], held = left === null || left > steps[c], mass = masses?.[c][row] ?? 0;
          return [held ? 1 : 0, masses ? Math.max(0, mass - 1) / 254 : PLAIN,
            left !== null && left <= steps[c] && (c === 0 || left > steps[c - 1])];
        },
        label: (row) => (row % map.heads ? "" : `L${row / map.heads}`),
      });
      lifePicture.setAttribute("aria-label", `${lifeTitle.textContent}. ${lifeSaid.textContent}`);
    }
    if (!lifeTwin.hidden) {
      const drew = (row, left) => {
        if (!masses) return "–";
        const k = left === null ? masses.length - 1 : steps.findLastIndex((x) => x < left),
          mass = k >= 0 ? masses[k][row] : 0;
        return mass ? share(((mass - 1) / 254) ** 2) : "–";
      };
      lifeTwin.replaceChildren(
        table(`Position ${lived.position}, head by head`, ["layer, head", "kept until", "why",
          "attention drawn, of its layer's largest"],
          lived.rows.map(([left, letter], row) =>
            [rowName(row), left === null ? "now" : when(left), `${letter}, ${map.words[letter]}`,
            drew(row, left)]
          ))
      );
    }
  }

  // ---- find tokens

  search.addEventListener("submit", (event) => {
    event.preventDefault();
    sought = { text: needle.value, which: 0, found: null };
    if (!sought.text) drawFound(), drawMap(), drawStrip();
    load();
  });
  function drawFound(error) {
    refuse(foundSaid, error);
    foundWays.replaceChildren();
    foundOut.replaceChildren();
    const found = sought.found;
    if (!found || error) return;
    foundSaid.textContent = found.sentence;
    if (!found.places.length) return;
    const [first] = found.places[found.which];
    const to = (word, by, off) =>
      button(word, () => ((sought.which = found.which + by), load()), { "aria-disabled": String(off) });
    if (found.places.length > 1)
      foundWays.append(to("previous", -1, found.which === 0), to("next", 1, found.which + 1 >= found.places.length),
        h("span", { class: "quiet" }, `place ${found.which + 1} of ${found.places.length}`));
    foundWays.append(
      button("Show it",
        () => (go(at.row, first), picture.scrollIntoView({ block: "nearest" }), picture.focus({ preventScroll: true })))
    );
    const when = (x) => (x === null ? "–" : x < 0 ? "prompt" : String(x));
    if (found.rows)
      foundOut.append(
        table("What became of it, head by head", ["layer, head", "kept", "first left", "last left", "why"],
          found.rows.map((x) =>
            [`${Math.floor(x.row / map.heads)}, ${x.row % map.heads}`, `${x.kept} of ${found.size}`, when(x.first),
            when(x.last), x.why || "–"]
          )),
        h("p", { class: "quiet" },
          [...new Set(found.rows.map((x) => x.why).filter(Boolean))].map((x) => `${x} ${map.words[x]}.`).join(" "))
      );
  }

  // ---- heavy hitters

  function drawHeavy(got) {
    heavyOut.replaceChildren();
    heavyNote.textContent = "";
    if (!got || !map) return;
    const largest = Math.max(1e-9, ...got.rows.map((x) => x[2]));
    const rows = got.rows.map(([p, text, part, kept]) => {
      const to = button(spoken(text) || "–", () => go(heavyRow === "" ? at.row : Number(heavyRow), p), {
        class: "bare tok",
        "aria-label": `position ${p}, ${spoken(text)}`,
      });
      return [h("span", { class: "what" }, to, h("small", null, String(p))),
        h("span", { class: "share" }, h("i", { style: `--w: ${((100 * part) / largest).toFixed(1)}%` }),
          got.measured ? share(part) : `${kept}`), `${kept} of ${got.of}`];
    });
    heavyOut.append(
      rows.length ? table("Heavy hitters", ["token", got.measured ? "attention" : "heads", "kept by"], rows) : ""
    );
    const mean = heavyRow === "" ? ", mean over the heads" : "",
      layers = [...new Set(got.recorded.map((row) => Math.floor(row / map.heads)))].join(", ");
    heavyNote.textContent = !rows.length
      ? (got.measured ? `Attention is recorded of layers ${layers}: choose one of these.`
        : map.held < map.length ? "Nothing older than the window is kept."
        : "Nothing was evicted so far and attention is not recorded: nothing tells the entries apart.")
      : got.measured === "mass"
      ? `Attention: the part that fell on the entry, of what the entries held now have drawn${mean}.`
      : got.measured
      ? `Attention of this step alone, recorded of ${layers.includes(",") ? "layers" : "layer"} ${layers}${mean}.`
      : "Attention is not recorded in this step: listed is what is kept although it is old, by the number of heads.";
  }

  // ---- two runs

  async function offer(runs) {
    try {
      const listed = runs.length ? (await ask("/ds/library")).rows : [];
      names = new Map(
        listed.map((row) =>
          [row.run, `${row.title || `run ${row.run.slice(0, 8)}`}: `
          + `${row.called || ""}${row.steps ? `, ${plural(row.steps, "step")}` : ""}`]
        )
      );
    } catch {
      names = new Map();
    }
    if (!runs.includes(other)) other = "";
    const word = (run) => names.get(run) || example(run)?.title || `run ${run.slice(0, 8)}`;
    chooseOther.replaceChildren(
      h("option", { value: "" }, runs.length ? "compare with…" : "no other run of this prompt"),
      ...runs.map((run) => h("option", { value: run }, word(run)))
    );
    chooseOther.value = other;
    chooseOther.disabled = !runs.length;
    drawBoth();
    load();
  }
  chooseOther.addEventListener("change", () => ((other = chooseOther.value), (both = null), drawBoth(), load()));
  function drawBoth(error) {
    refuse(bothSaid, error);
    bothOut.replaceChildren();
    if (error) return;
    if (!both || !other || !map)
      return void (bothSaid.textContent = chooseOther.disabled
        ? "Run the same prompt with another policy, and both can be compared here: what each keeps, head by head."
        : "");
    const word = chooseOther.selectedOptions[0]?.textContent || other, rows = both.jaccard.length,
      mean = both.jaccard.reduce((sum, x) => sum + x, 0) / rows;
    const least = both.jaccard.indexOf(Math.min(...both.jaccard)),
      most = both.jaccard.indexOf(Math.max(...both.jaccard));
    const name = (row) => `layer ${Math.floor(row / both.heads)}, head ${row % both.heads}`;
    bothSaid.textContent = `After step ${both.step} here and step ${both.beside} there the kept sets overlap by `
      + `${mean.toFixed(2)} on average (Jaccard: kept by both, of kept by one of them), from `
      + `${both.jaccard[least].toFixed(2)} in ${name(least)} to ${both.jaccard[most].toFixed(2)} in ${name(most)}. `
      + "Compared are the first "
      + `${plural(both.upto, "position")}${both.parted ? ": behind them the texts differ" : ""}.`;
    const spans = (list) => {
      const shown = list.slice(0, 24).map(([a, b]) => (a === b ? String(a) : `${a}–${b}`)).join(", ");
      return h("span", { class: "spans" }, shown
          + (list.length > 24 ? ` and ${plural(list.length - 24, "stretch").replace("stretchs", "stretches")} more`
            : "") || "–");
    };
    const bar = (x) => h("span", { class: "share" }, h("i", { style: `--w: ${(100 * x).toFixed(1)}%` }), x.toFixed(2));
    bothOut.append(h("p", { class: "quiet" }, `Here: this run. There: ${word}.`),
      table("What two runs keep, head by head", ["layer, head", "Jaccard", "both", "only here", "only there",
        "positions only here", "positions only there"],
        both.counts.map(([two, one, second], row) =>
          [name(row), bar(both.jaccard[row]), grouped(two), grouped(one), grouped(second),
          spans(both.only[0][row]), spans(both.only[1][row])]
        )));
  }

  // ---- attention

  layerOf.addEventListener("change", () => ((asked.layer = Number(layerOf.value)), load()));
  headOf.addEventListener("change", () => ((asked.head = Number(headOf.value)), load()));
  again.addEventListener("submit", async (event) => {
    event.preventDefault();
    refuse(recordWhy);
    const layers = layersBox.value.split(/[\s,]+/).filter(Boolean).map(Number);
    try {
      if (!layers.length || layers.some((x) => !Number.isInteger(x)))
        throw new Error("Give numbers of layers with commas between them, such as 0,3.");
      const { run } = await ask(`${base()}/attention`, { method: "POST", body: JSON.stringify({ layers }) });
      at.position = null;
      open(run, { own: true });
    } catch (error) {
      refuse(recordWhy, String(error.message));
    }
  });
  function drawSeen(error) {
    const some = !!seen?.layers?.length;
    for (const part of [seenRow, seenSaid, seenNote]) part.hidden = !some;
    seenBox.hidden = !some || !seenTwin.hidden;
    lack.hidden = some || (!seen && !error);
    if (!some) {
      const levels = store()?.head?.levels || [], fields = levels.includes("fields");
      recordSaid.textContent = error
        || (fields ? "This step holds no attention: of a step at most 524,288 weights are kept; record fewer layers."
          : `This run has level “${levels.at(-1) ?? "counts"}” and holds no attention. Record it with --level fields `
            + `--layers 0,3 on the command line, with level="fields", layers=[0, 3] in Python, or here:`);
      return;
    }
    if (layerOf.childElementCount !== seen.layers.length)
      layerOf.replaceChildren(...seen.layers.map((x) => h("option", { value: x }, String(x))));
    const heads = map?.heads ?? 1;
    if (headOf.childElementCount !== heads)
      headOf.replaceChildren(...[...Array(heads).keys()].map((x) => h("option", { value: x }, String(x))));
    layerOf.value = String(seen.layer);
    headOf.value = String(seen.head);
    const groups = seen.weights.length,
      rows = seen.weights.flatMap((lines, g) => lines.map((line, r) => ({ g, r, line }))),
      [early, late, rest] = seen.shares;
    seenSaid.textContent = `Of what this step's ${plural(seen.queries.length, "token")} gave in layer ${seen.layer}, `
      + `head ${seen.head}, ${share(early)} went to the first `
      + `${seen.first === 1 ? "position" : `${seen.first} positions`}, ${share(late)} to the ${seen.newest} newest, `
      + `${share(rest)} to those between.`;
    const peak = Math.max(1e-9, ...rows.map(({ line }) => Math.max(...line)));
    seenNote.textContent = `One row per query head${seen.queries.length > 1 ? " and token" : ""} of the group `
      + `(${groups} share this KV head), one column per `
      + `${seen.bin > 1 ? `${seen.bin} positions, their weights added` : "position that was held"}; stronger: more `
      + `weight, by its root, the strongest ${share(peak)}.`;
    const name = ({ g, r }) =>
      `query head ${seen.head * groups + g}${seen.queries.length > 1 ? `, position ${seen.queries[r][0]}` : ""}`;
    if (!seenBox.hidden && wide()) {
      colours ??= paints(element);
      const score = seen.positions.map((_, c) => rows.reduce((sum, { line }) => sum + line[c], 0)),
        bound = [...score].sort((a, b) => b - a)[Math.min(score.length - 1, 30)] ?? 0;
      grid(seenPicture, colours, {
        wide: wide(),
        rows: rows.length,
        columns: seen.positions.length,
        group: seen.queries.length,
        left: 74,
        most: 22,
        tall: rows.length > 48 ? 4 : rows.length > 16 ? 8 : 14,
        cell: (row, c) => [1, Math.sqrt(rows[row].line[c] / peak), 0],
        label: (row) => (rows.length > 48 ? (rows[row].r ? "" : `q${seen.head * groups + rows[row].g}`)
          : `q${seen.head * groups + rows[row].g} ${spoken(seen.queries[rows[row].r][1]).slice(0, 6)}`),
        over: score.flatMap((x, c) =>
          (x >= bound && x > 0 ? [[c, spoken(seen.texts[c]).slice(0, 12).replace(/^␣/, "") || "␣"]] : [])
        ),
      });
      seenPicture.setAttribute("aria-label",
        `attention of step ${seen.step}, layer ${seen.layer}, head ${seen.head}. ${seenSaid.textContent}`);
    }
    if (!seenTwin.hidden) {
      const shown = rows.slice(0, 24);
      seenTwin.replaceChildren(
        table(`Attention of step ${seen.step}, layer ${seen.layer}, head ${seen.head}`, [
          seen.bin > 1 ? "positions" : "position",
          "token",
          ...shown.map(name),
        ],
          seen.positions.map((p, c) => [p === seen.ends[c] ? String(p) : `${p}–${seen.ends[c]}`, token(seen.texts[c]),
            ...shown.map(({ line }) => line[c].toFixed(4))]
          )),
        rows.length > 24 ? h("p", { class: "quiet" }, `The first 24 of ${rows.length} rows.`) : ""
      );
    }
  }

  // ---- over the steps

  function drawSeries() {
    charts.replaceChildren();
    if (!series || !looked()) return;
    const i = now(), kv = store().steps[i]?.kv.find((x) => x.lane === "target");
    bytesTold.replaceChildren(
      ...(kv
        ? [h("b", null, size(kv.bytes)),
          kv.bytes <= kv.full ? ` held, ${share(kv.bytes / kv.full)} of the ${size(kv.full)} that keeping all takes`
            : ` held, more than the ${size(kv.full)} that keeping all takes: memory comes in pages of 64 entries, `
              + "and what a policy notes counts"] : [])
    );
    const budget = map?.budget ?? null;
    const wide = Math.max(240, Math.min(900, (charts.clientWidth || 600) / (charts.clientWidth > 760 ? 2 : 1) - 16));
    charts.append(
      chart("bytes of the cache", wide, series.step, [
        ["held", series.bytes, "full"], ["keeping all", series.full, "dashed"],
      ], size, i, kv && [kv.bytes, kv.full], null),
      chart("entries per head", wide, series.step, [["held", series.held, "full"], ["read", series.length, "dashed"]],
        grouped, i, kv && [kv.held, kv.read], budget)
    );
    const every = series.every[0],
      shown = series.step.map((_, k) => k).filter((k) =>
        series.step.length <= 60 || k % Math.ceil(series.step.length / 60) === 0 || k === series.step.length - 1
      );
    seriesTwin.replaceChildren(
      table("Budget and bytes over the steps", ["after step", "read", "held",
        `evicted${every > 1 ? ` in ${every} steps` : ""}`, "bytes held", "bytes of all"], shown.map((k) =>
          [String(series.step[k]), grouped(series.length[k]), grouped(series.held[k]), grouped(series.evicted[k]),
          size(series.bytes[k]), size(series.full[k])]
        ))
    );
  }
  function chart(word, wide, steps, lines, unit, i, present, budget) {
    const high = 170, left = 64, right = 84, top = 16, bottom = 26, span = wide - left - right,
      tall = high - top - bottom;
    const peak = Math.max(1, ...lines.flatMap(([, values]) => values), budget || 0, ...(present || [])),
      last = Math.max(1, steps.at(-1) ?? 1, i);
    const x = (k) => left + (k / last) * span, y = (value) => top + tall - (value / peak) * tall;
    const marks = [0, 0.5, 1].map((part) =>
      [s("path", { class: "rule", d: `M${left},${y(part * peak)}H${left + span}` }),
      s("text", { x: left - 8, y: y(part * peak) + 4, "text-anchor": "end" }, unit(part * peak))]
    );
    const drawn = lines.map(([name, values, cls]) =>
      s("path", { class: "line " + cls, d: values.map((value, k) =>
        `${k ? "L" : "M"}${x(steps[k]).toFixed(1)},${y(value).toFixed(1)}`
      ).join("") })
    );
    let above = -Infinity;
    const ends = lines.map(([name, values]) => [name, y(values.at(-1) ?? 0)])
      .sort((a, b) => a[1] - b[1])
      .map(([name, at]) => s("text", { x: left + span + 8, y: above = Math.max(at + 4, above + 14) }, name));
    const dots = present
      ? [s("path", { class: "here", d: `M${x(i)},${top}V${top + tall}` }),
        ...present.map((value, k) => s("circle", { class: k ? "dot open" : "dot", cx: x(i), cy: y(value), r: 4.5 }))]
      : [];
    const limit = budget !== null && budget <= peak
      ? [s("path", { class: "budget", d: `M${left},${y(budget)}H${left + span}` }),
        s("text", { x: left + 4, y: y(budget) - 4 }, `budget ${grouped(budget)}`)] : [];
    const said = `${word} over ${plural(last + 1, "step")}: `
      + `${lines.map(([name, values], k) => `${name} ${unit(present?.[k] ?? values.at(-1) ?? 0)}`).join(", ")} at step `
      + `${i}`;
    return h("figure", null, h("figcaption", null, word),
      s("svg", { width: wide, height: high, role: "img", "aria-label": said }, marks, limit, drawn, dots, ends,
        s("text", { x: left, y: high - 8 }, "0"),
        s("text", { x: left + span, y: high - 8, "text-anchor": "end" }, `step ${last}`)));
  }

  // ---- together

  let run = null;
  function update() {
    if (current() !== "cache") return;
    if (panes[0]?.id !== run) {
      run = panes[0]?.id ?? null;
      at = { row: 0, position: null };
      begin = tabled = 0;
      map = strip = lived = both = seen = series = null;
      other = "";
      asked = { layer: null, head: 0 };
      sought = { ...sought, which: 0, found: null };
      questions.forEach((one) => one.forget());
      chooseOther.replaceChildren(h("option", { value: "" }, "compare with…"));
      drawLife(), drawFound(), drawBoth(), cells.replaceChildren();
    }
    draw();
    drawSeries();
    load();
  }
  let due = 0;
  /** Steps come faster than they can be looked at: they are gathered up to the next picture. */
  const soon = () => (due ||= requestAnimationFrame(() => ((due = 0), update())));
  heard(soon);
  stepped(soon);
  const redraw = () => ((colours = null), draw(), drawStrip(), drawLife(), drawSeen(), drawSeries(), load());
  new ResizeObserver(redraw).observe(mapBox.parentElement);
  new MutationObserver(redraw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  element.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea, summary, .scroll") || event.ctrlKey || event.metaKey
      || event.altKey || !looked()) return;
    if (event.target.closest("button, canvas") && /^(Arrow|Home|End)/.test(event.key)
      && !event.target.closest(".steps")) return;
    const by = { ArrowLeft: -1, ",": -1, ArrowRight: 1, ".": 1 }[event.key];
    if (by) seek(now() + by);
    else if (event.key === "Home") seek(0);
    else if (event.key === "End") seek(Infinity);
    else if (event.key === "e") nextLost();
    else return;
    event.preventDefault();
  });
  return {
    shown: () => (questions.at(-1).forget(), update()),
    hidden: () => current() === "debugger" || address(null), // there it is read
  };
}
