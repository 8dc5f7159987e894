/* speed_chart: figures of the server, and that of the speed that the measured acceptance brings. The server makes the
 * figure; the library that draws it comes from the server too, once a figure is shown. The numbers are in tables. */
import { h } from "../scope.js";

let library; // the promise of it
const shade = () => (document.body.classList.contains("dark") ? "dark" : "light");

/** The library that draws figures, fetched once. */
function fetchLibrary(address) {
  library ??= new Promise((resolve, reject) => {
    const script = h("script", { src: address });
    script.addEventListener("load", () => resolve(/** @type {any} */ (window).Plotly));
    script.addEventListener("error", () => {
      library = undefined;
      reject(new Error("The chart cannot be drawn: its library was not found. Its numbers are in the tables below."));
    });
    document.head.append(script);
  });
  return library;
}

/** A place for a figure of the server. about: what it shows, for those who cannot see it;  change(layout): the
 *  layout as the page has it;  show({light, dark, library}): draw a figure, again when the page's colours change */
export function plotBox(about, change) {
  const plot = h("div", { class: "plot", role: "img", "aria-label": about }), note = h("p", { class: "quiet" });
  const element = h("div", null, plot, note);
  let shown = null;
  async function draw() {
    const chart = shown;
    try {
      const plotly = await fetchLibrary(chart.library);
      if (chart !== shown || !element.isConnected) return;
      const { data, layout } = chart[shade()];
      await plotly.react(plot, data, change(layout), { displayModeBar: false, responsive: true });
    } catch (error) {
      note.textContent = error.message;
    }
  }
  new MutationObserver(() => shown && element.isConnected && draw())
    .observe(document.body, { attributes: true, attributeFilter: ["class"] });
  return {
    element,
    show(chart) {
      shown = chart;
      if (chart) draw();
    },
  };
}

/** The section of the chart. about: what it shows, for those who cannot see it;  show({light, dark}): draw a figure */
export function speedChart(about) {
  const box = plotBox(about, (layout) => ({ ...layout, title: undefined, margin: { ...layout.margin, t: 12 },
    height: 420, legend: { ...layout.legend, y: -0.26, yanchor: "top" } })); // below, where it may have many lines
  const title = h("h2", null), element = h("section", { class: "speed" }, title, box.element);
  return {
    element,
    show(chart) {
      element.hidden = !chart;
      if (chart) title.textContent = chart[shade()].layout.title.text;
      box.show(chart);
    },
  };
}
