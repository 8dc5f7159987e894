/* pages: starts the drawing of a gallery page: a recorded run, or the runs of a notebook. */
import { course } from "./course.js";
import { drawTrace } from "./trace.js";

const given = JSON.parse(document.getElementById("data").textContent);
const shade = () => (document.documentElement.classList.contains("dark") ? "dark" : "light");
const repaint = given.live ? course(given.live, shade) : drawTrace(given, shade);
new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["class"] });
